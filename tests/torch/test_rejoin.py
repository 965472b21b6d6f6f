"""Elastic jobs with fewer ranks than they must have, in real processes: they wait for others, and go on from where they were."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hocket.settings import Settings
from hocket.start import replacements

pytest.importorskip("torch")

from tests.torch.trainings import PATIENCE_S, Local, killed  # needs torch

pytestmark = pytest.mark.members

LEAST = 2


@pytest.fixture
def trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Local]]:
    """Makes them, with as few ranks as they may have."""
    monkeypatch.setattr(replacements, "WAIT_S", 0.1)

    def make(*, rejoin_timeout_s: float | None, respawn: int = 0) -> Local:
        settings = Settings(
            timeout_s=60, start_timeout_s=30, heartbeat_timeout_s=5, rejoin_timeout_s=rejoin_timeout_s
        )
        return Local(tmp_path, "ab", (), members_min=LEAST, members_max=3, respawn=respawn, settings=settings)

    yield from killed(tmp_path, monkeypatch, make)


def test_a_job_of_too_few_waits_for_those_that_its_launcher_starts(
    trainings: Callable[..., Local], caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: a job that must have all its ranks would end with the first loss, although others are on their way."""
    training = trainings(rejoin_timeout_s=None, respawn=2)
    for lost in ("founder-1", "founder-0"):
        os.kill(training.process(lost), signal.SIGKILL)
        training.trains_on(LEAST, further=10)
    outcome = training.end()
    assert (outcome.code, outcome.failures, outcome.ended) == (0, (), None), training.said()
    assert training.check() == [2, 1, 2, 1, 2]
    assert caplog.text.count("1 of at least 2 ranks are left, without rank") == LEAST


@pytest.mark.parametrize(
    "flaw", ["dies when it is counted on", "dies while all meet", "dies when all have met"]
)
def test_a_job_of_too_few_waits_for_another_one_if_a_newcomer_dies(
    flaw: str, trainings: Callable[..., Local]
) -> None:
    """Broken: the last rank with the job's state would end, or wait for ever, because of a process that came to its help."""
    training = trainings(rejoin_timeout_s=PATIENCE_S)
    os.kill(training.process("founder-1"), signal.SIGKILL)
    wrong = training.come("c", flaw)
    assert wrong.wait(PATIENCE_S) != 0, training.said()
    right = training.come("c")
    training.trains_on(LEAST)
    outcome = training.end()
    assert (outcome.code, right.returncode) == (0, 0), training.said()
    training.check()


def test_a_job_of_too_few_ends_when_nobody_comes(trainings: Callable[..., Local]) -> None:
    """Broken: it would keep its machines for ever, or not say who is missing."""
    training = trainings(rejoin_timeout_s=0.5)
    os.kill(training.process("founder-1"), signal.SIGKILL)
    outcome = training.end()
    assert outcome.code == 128 + signal.SIGKILL
    assert outcome.ended is not None
    assert "1 of at least 2 members are left, and nobody came in 500ms" in outcome.ended.why
    assert outcome.ended.lost == (1,)
