"""Ranks of elastic jobs that are lost, and the processes that the launcher starts in their place, in real processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hocket.start import replacements

pytest.importorskip("torch")

from tests.torch.trainings import Local, killed  # needs torch

pytestmark = pytest.mark.members


@pytest.fixture
def trainings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Local]]:
    """Makes them. Replacements are not long in coming."""
    monkeypatch.setattr(replacements, "WAIT_S", 0.1)

    def make(hosts: str, *founders: str, respawn: int, members_min: int = 1) -> Local:
        return Local(
            tmp_path, hosts, founders, members_min=members_min, members_max=len(hosts), respawn=respawn
        )

    yield from killed(tmp_path, monkeypatch, make)


def test_a_lost_rank_is_replaced_and_so_is_its_replacement(
    trainings: Callable[..., Local], caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: a job would get smaller with each loss until somebody looks, or replacements would be beside it and not in it."""
    training = trainings("ab", respawn=5)
    for lost in ("founder-1", "founder-2"):
        os.kill(training.process(lost), signal.SIGKILL)
        training.trains_on(2, further=10)
    outcome = training.end()
    assert (outcome.code, outcome.failures, outcome.ended) == (0, (), None), training.said()
    assert training.check() == [2, 1, 2, 1, 2]
    assert "rank 1 on b is replaced in 0.1 s by rank 2: process 1 of respawn=5" in caplog.text
    assert "rank 2 on b is replaced in 0.2 s by rank 3: process 2 of respawn=5" in caplog.text
    assert "rank 3 on b (process" in caplog.text


def test_rank_0_is_replaced_and_others_may_join_beside(
    trainings: Callable[..., Local], caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: the first rank could not be replaced, or whoever joins would get the number of a replacement."""
    training = trainings("abc", respawn=1)
    os.kill(training.process("founder-0"), signal.SIGKILL)
    training.trains_on(3)
    training.leaves("founder-2")
    training.trains_on(2)
    newcomer = training.come("c")
    training.trains_on(3)
    outcome = training.end()
    assert (outcome.code, newcomer.returncode) == (0, 0), training.said()
    assert training.check() == [3, 2, 3, 2, 3]
    assert "rank 0 on a is replaced in 0.1 s by rank 3: process 1 of respawn=1" in caplog.text
    for name in ("rank 3 on a", "rank 4 on c"):
        assert f"{name} (process" in caplog.text


def test_who_leaves_in_order_is_not_replaced_and_who_raises_is(
    trainings: Callable[..., Local], caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: a machine could not be taken back from a job, as another process would come up on it; or an exception in one rank's
    script would cost the job that rank for good."""
    training = trainings("abc", "", "raises", "", respawn=2)
    training.leaves("founder-2")
    training.trains_on(2, further=20)
    assert "is replaced" not in caplog.text
    (training.directory / "raise").touch()
    training.until(lambda: "founder-3" in training.steps())
    training.trains_on(2)
    assert training.end().code == 0, training.said()
    assert training.check() == [3, 2, 1, 2]
    assert "the batch is not what it should be" in training.said()


def test_processes_that_never_train_are_no_more_than_asked_for(
    trainings: Callable[..., Local], caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: a host that is out of order would be asked for processes again and again, without a pause, or would end the job."""
    training = trainings("ab", "", "never joins", respawn=3)
    os.kill(training.process("founder-1"), signal.SIGKILL)
    training.until(lambda: "rank 4 on b is not replaced: all 3 processes of `respawn`" in caplog.text)
    for number, wait in ((2, "0.1"), (3, "0.2"), (4, "0.4")):
        assert f"is replaced in {wait} s by rank {number}" in caplog.text
    training.trains_on(1)
    outcome = training.end()
    assert (outcome.code, outcome.failures) == (0, ()), training.said()


def test_a_replacement_that_comes_too_late_is_ended(
    trainings: Callable[..., Local], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Broken: a job would not end before a process of it has started that nobody needs, or would fail because of that one."""
    training = trainings("ab", "", "waits for ever", respawn=1)
    os.kill(training.process("founder-1"), signal.SIGKILL)
    training.until((training.directory / "waiting").exists)
    outcome = training.end()
    assert (outcome.code, outcome.failures) == (0, ()), training.said()
    assert "rank 2 on b failed" not in caplog.text
