"""Goodput of elastic jobs in real processes: what the launcher says of it is what the ranks have noted."""

from __future__ import annotations

import itertools
import os
import signal
from collections import defaultdict
from pathlib import Path

import pytest

from hocket.artefacts.trace import read
from hocket.settings import Settings

pytest.importorskip("torch")

from tests.torch.trainings import Local  # needs torch

FURTHER = 30
"""Steps between two changes."""


def trained(training: Local) -> int:
    """Number of samples in steps that stand, each once in its epoch."""
    unfinished = training.drawn_by_the_dead()
    epochs: dict[int, set[int]] = defaultdict(set)
    for step, own in enumerate(training.of_the_chain(), 1):
        by_rank = unfinished[step] | {each["rank"]: each["drawn"] for each in own}
        epochs[own[0]["epoch"]].update(itertools.chain(*(by_rank[at] for at in range(own[0]["world"]))))
    return sum(map(len, epochs.values()))


def test_goodput_counts_what_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: somebody would pay for a job that stands still half of the time, and not know it, or mend the wrong thing."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    trace = tmp_path / "trace"
    settings = Settings(timeout_s=60, start_timeout_s=30, heartbeat_timeout_s=10, trace=str(trace))
    # Steps of which all take as long: their pace is that of a few.
    founders = ("is slow",) * 3
    with Local(tmp_path, "abc", founders, members_min=1, members_max=4, settings=settings) as training:
        training.trains_on(3, further=FURTHER)
        os.kill(training.process("founder-0"), signal.SIGKILL)
        training.trains_on(2, further=FURTHER)
        training.come("a", "is slow")
        training.trains_on(3, further=FURTHER)
        training.leaves("founder-1")
        training.trains_on(2, further=FURTHER)
        outcome = training.end()
    assert outcome.code == 0, training.said()
    training.check()
    changes, found = read(trace).members_changes(), read(trace).goodput()
    assert [each.what for each in changes] == ["lost", "joined", "left"]
    assert found is not None
    assert (found.unit, found.committed, found.steps) == (
        "samples",
        trained(training),
        len(training.of_the_chain()),
    )
    assert found.undisturbed == pytest.approx(found.committed + found.lost.total)
    assert found.lost.standing_still + found.lost.done_again > 0
    assert found.lost.joining > 0
    assert found.lost.too_few_ranks == 0
    assert 0 < found.share < 1
    assert caplog.text.count(f"goodput {found.share:.1%}: {found.committed} samples in ") == 1
