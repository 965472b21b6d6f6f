"""Late means with own gradients first: equal to a reference with a working copy for each rank, and one anchor on all."""

from __future__ import annotations

import os
from pathlib import Path

from hocket.settings import Settings
from tests.support import ranks

SCRIPTS = "tests.torch.own_first_scripts"
AT_ONCE = Settings(timeout_s=30, start_timeout_s=30, sentinel=False)
"""Schedules begin with the first iteration."""

CASES = int(os.environ.get("HOCKET_FUZZ_CASES", "24"))
"""Of 120 or so: `HOCKET_FUZZ_CASES=1000` runs all."""


def test_ranks_train_what_the_reference_does(tmp_path: Path) -> None:
    """Broken: own gradients would be lost, or doubled, when a mean arrives; or ranks would go apart for good."""
    ended = ranks.run(f"{SCRIPTS}:against_the_reference", 2, tmp_path, str(CASES), settings=AT_ONCE)
    assert ended.outcome.code == 0, ended.output
    for found in ended.returned:
        assert len(found) >= min(CASES, 60)
        assert [each[:4] for each in found if not max(each[1:4]) < 1e-6] == []
    first, second = ([each[4] for each in found] for found in ended.returned)
    assert first == second
