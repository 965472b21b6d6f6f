"""Exchanges with a grace window, in jobs that end with their first rank: those that come in time do not wait for late ones."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import hocket.torch as hk  # noqa: E402  # needs torch
from hocket.artefacts.plan import Outer  # noqa: E402
from hocket.errors import UsageError  # noqa: E402
from hocket.job.store.server import Server  # noqa: E402
from hocket.job.store.store import Store  # noqa: E402
from hocket.settings import Settings  # noqa: E402
from hocket.training.elastic.commit import Members  # noqa: E402
from hocket.training.step.stand_in import StandIn  # noqa: E402
from hocket.training.step.stepping import Stepping, check_stands_in  # noqa: E402
from tests.support import ranks  # noqa: E402
from tests.torch import grace_scripts as scripts  # noqa: E402
from tests.torch.own_first_reference import flat  # noqa: E402

WORLD = 3
SECRET = b"0123456789abcdef"


def test_the_others_pass_an_exchange_without_a_late_rank(tmp_path: Path) -> None:
    """Broken: ranks would wait for the slowest one, its progress would be lost or counted twice, or anchors would go apart."""
    settings = Settings(timeout_s=60, start_timeout_s=60, guard="off")
    calls = {name: ("tests.torch.grace_scripts:trained", str(tmp_path), name) for name in scripts.CASES}
    for name, of_rank in ranks.by_name(calls, WORLD, tmp_path, settings=settings).items():
        local, waits, normed = scripts.CASES[name]
        steps = [[scripts.Step(*each) for each in made] for made, _, _ in of_rank]
        assert sum(each.late for each in steps[scripts.SLOW]) >= len(waits), name
        anchors: dict[int, set[str]] = {}
        for each in (each for own in steps for each in own if not normed or each.after % scripts.EVERY == 0):
            anchors.setdefault(each.after, set()).add(each.digest)
        assert all(len(each) == 1 for each in anchors.values()), name
        assert len({tuple(after) for _, _, after in of_rank}) == 1, name
        if local.late or normed:
            continue
        reference = scripts.replayed(local, steps)
        for rank, (_, own, after) in enumerate(of_rank):
            theirs = flat(reference.models[rank].parameters()).detach()
            for found, expected in ((own, theirs), (after, reference.anchor.detach())):
                torch.testing.assert_close(
                    torch.tensor(found, dtype=torch.float64), expected, rtol=0, atol=1e-9
                )


def test_the_window_begins_with_the_quorum() -> None:
    """Broken: an exchange would leave with fewer ranks than the user wants, or wait for the last one for ever."""
    server = Server(["127.0.0.1"], 0, SECRET)
    address = f"127.0.0.1:{server.port}"
    jobs = [
        SimpleNamespace(
            rank=rank,
            world=WORLD,
            secret=SECRET,
            store=Store(address, SECRET, rank=rank, who=f"rank {rank}", timeout_s=5),
        )
        for rank in range(WORLD)
    ]
    left = [threading.Event() for _ in jobs]

    def leave(rank: int) -> tuple[()]:
        left[rank].set()
        return ()

    made: list[Any] = [
        StandIn(job, lambda at=at: leave(at), name="exchanges/0", grace_s=0.05, quorum=2)  # type: ignore[arg-type, misc]
        for at, job in enumerate(jobs)
    ]
    try:
        for each in made:
            each.start()
        comes(made[0])
        assert not left[2].wait(0.3)
        made[2].step_begins()
        comes(made[1])
        # Nobody stands in for a rank while its parameters change.
        assert not left[2].wait(0.3)
        made[2].step_ended()
        assert left[2].wait(10)
        with made[2].changed:
            assert made[2].late
            assert made[2].taken() == ()
            assert made[2].taken() is None
        assert not left[0].is_set()
        assert not left[1].is_set()
        # Now the others are late, and an error of what leaves is the rank's own.
        left[2].clear()
        made[1]._leave = lambda: 1 / 0
        comes(made[0])
        comes(made[2])
        with made[1].changed:
            assert made[1].changed.wait_for(lambda: made[1].late, 10)
        with made[1].changed, pytest.raises(ZeroDivisionError):
            made[1].taken()
    finally:
        for each, job in zip(made, jobs, strict=True):
            each.close()
            job.store.leave()
        server.close()


def comes(each: StandIn) -> None:
    each.step_begins()
    each.came()
    each.step_ended()


def test_a_quorum_that_cannot_be_is_refused() -> None:
    """Broken: a job would wait for ranks that there are not, or a quorum be ignored."""
    with pytest.raises(
        UsageError, match="quorum=2: a number of ranks, at least 1, after which grace_s=None begins"
    ):
        hk.Local(every=3, quorum=2).schedule(1)
    with pytest.raises(UsageError, match="quorum=3: there are 2 ranks"):
        check_stands_in(Outer(grace_s=1.0, quorum=3), 2, on_device=False)
    with pytest.raises(UsageError, match="grace_s=1: a thread sends what a late rank has"):
        check_stands_in(Outer(grace_s=1.0), 2, on_device=True)
    plan = SimpleNamespace(schedule=hk.Local(every=3, grace_s=1.0, quorum=2).schedule(1))
    with pytest.raises(UsageError, match=r"quorum=2: an elastic job's exchanges stand with"):
        Stepping(SimpleNamespace(plan=plan, commit=Members))  # type: ignore[arg-type]
