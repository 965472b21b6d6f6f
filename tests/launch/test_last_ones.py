"""Ranks that still run when others have ended are named."""

from __future__ import annotations

import logging

import pytest

from hocket.start.last_ones import LastOnes


def test_who_hangs_after_the_last_step_is_named(caplog: pytest.LogCaptureFixture) -> None:
    """Broken: a job of which one rank hangs after training would be waited for without a word."""
    times = [0.0, 29.0, 31.0, 32.0, 61.0, 63.0, 100.0]
    each = iter(times)
    last = LastOnes(lambda: next(each))
    said = []
    with caplog.at_level(logging.WARNING, logger="hocket.run"):
        for _ in times:
            caplog.clear()
            last.note([(1, "h1"), (2, "h2")])
            said.append(caplog.text)
    assert [bool(text) for text in said] == [False, False, True, False, False, True, False]
    assert "31 s ago, and the job waits for rank 1 on h1 and rank 2 on h2" in said[2]
