"""Ranks that step alone at speeds and with weights of their own: what one process makes of the same steps, one anchor on all."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import hocket.torch as hk  # noqa: E402  # needs torch
from hocket.errors import UsageError  # noqa: E402
from hocket.settings import Settings  # noqa: E402
from hocket.training.guard.drift import NOTHING  # noqa: E402
from hocket.training.step.pace import Pace  # noqa: E402
from tests.support import ranks  # noqa: E402
from tests.torch import paced_scripts as scripts  # noqa: E402
from tests.torch.own_first_reference import flat  # noqa: E402
from tests.torch.test_elastic import run  # noqa: E402

pytestmark = pytest.mark.late

WORLD = 3
SETTINGS = Settings(timeout_s=60, start_timeout_s=60)


def check(
    name: str, steps: list[list[scripts.Step]], ends: dict[int, tuple[list[float], list[float]]]
) -> None:
    """All ranks have one anchor after each exchange, and what one process makes of the same steps."""
    anchors: dict[int, set[str]] = {}
    for rank in ends:
        for step in steps[rank]:
            anchors.setdefault(step.after, set()).add(step.digest)
    assert all(len(each) == 1 for each in anchors.values()), name
    reference = scripts.replayed(scripts.LOCALS[name], steps)
    own = {rank: flat(reference.models[rank].parameters()).detach() for rank in ends}
    reference.flush()
    for rank, (before, after) in ends.items():
        torch.testing.assert_close(torch.tensor(before, dtype=torch.float64), own[rank], rtol=0, atol=1e-9)
        torch.testing.assert_close(
            torch.tensor(after, dtype=torch.float64), reference.anchor.detach(), rtol=0, atol=1e-9
        )


def test_each_rank_steps_as_fast_as_it_can(tmp_path: Path) -> None:
    """Broken: the mean would count a rank's progress twice or not by its weight, or slow ranks would hold up the others."""
    ended = ranks.run(
        "tests.torch.paced_scripts:all_cases", WORLD, tmp_path, settings=replace(SETTINGS, guard="off")
    )
    assert ended.outcome.code == 0, ended.output
    for name in ended.returned[0]:
        local = scripts.LOCALS[name]
        found = [own[name] for own in ended.returned]
        steps = [[scripts.Step(*each) for each in made] for made, _, _ in found]
        check(name, steps, {rank: (own, after) for rank, (_, own, after) in enumerate(found)})
        counts = [sum(step.before >= 2 * local.every for step in made) for made in steps]
        # Late votes are counted in the second period.
        periods = scripts.PERIODS - 2
        if local.paced:
            assert counts[0] == periods * local.every
            assert periods <= counts[1] <= 2 * periods
            assert counts[2] == periods
        else:
            assert counts == [periods * local.every] * WORLD


@pytest.mark.parametrize(
    ("name", "victim"),
    [("waits", "1:12:forward"), ("late, outer", "2:12:launched"), ("quorum", scripts.LATE)],
)
def test_the_others_go_on_without_a_lost_rank(name: str, victim: str, tmp_path: Path) -> None:
    """Broken: weights of a lost rank would stay in the sum, or those that are left would go apart."""
    outcome, output = run(tmp_path, list("abc"), name, victim, script=Path(scripts.__file__))
    assert outcome.code == 0, output
    lost = 1 if victim == scripts.LATE else int(victim[0])
    left = [rank for rank in range(WORLD) if rank != lost]
    steps = [
        [scripts.Step(*json.loads(line)) for line in (tmp_path / f"{rank}.steps").read_text().splitlines()]
        for rank in range(WORLD)
    ]
    assert steps[lost][-1].after <= 12
    assert steps[left[0]][-1].members == left
    check(name, steps, {rank: json.loads((tmp_path / f"{rank}.json").read_text()) for rank in left})


def test_a_weight_is_a_number(tmp_path: Path) -> None:
    """Broken: one rank's NaN would be everybody's anchor."""
    ended = ranks.run("tests.torch.paced_scripts:refused", 2, tmp_path, settings=SETTINGS)
    assert ended.outcome.code == 0, ended.output
    said = [
        "log: weight=-1 is not a number from 0 on",
        "log: weight=nan is not a number from 0 on",
        "flush: ranks step at their own pace, and this one is in step 1 of 6 between exchanges",
    ]
    assert ended.returned == [said] * 2
    with pytest.raises(UsageError, match="grace_s=0: a number of seconds above 0"):
        hk.Local(every=3, grace_s=0.0).schedule(1)
    with pytest.raises(UsageError, match="weights='tokens': ranks, samples, logged"):
        hk.Local(every=3, weights="tokens").schedule(1)  # type: ignore[arg-type]


def test_steps_are_spread_over_a_period() -> None:
    """Broken: an exchange would come at other iterations on a slow rank, and the job would hang."""
    for every in range(1, 40):
        for slower in (1.0, 1.5, 2.0, 3.3, 7.0, 1e6):
            clock = [0.0]
            pace = Pace(now=lambda clock=clock: clock[0])  # type: ignore[misc]
            pace.begin(every)
            for _ in range(2):
                ended = []
                while sum(ended) < every:
                    pace.resumes()
                    clock[0] += slower
                    ended.append(pace.stepped())
                assert sum(ended) == every
                assert min(ended) >= 1
                own = NOTHING._replace(step_s=pace.step_s())
                pace.counted({0: NOTHING._replace(step_s=1.0), 1: own}, 1)
                pace.period_ended()
            # Half a step counts as a whole one.
            assert len(ended) == max(1, math.floor(every / slower + 0.5))


def test_ranks_of_a_site_keep_the_pace_of_its_slowest() -> None:
    """Broken: ranks of a site, which wait for one another in each step, would make different numbers of steps."""
    reports = {rank: NOTHING._replace(step_s=step_s) for rank, step_s in enumerate((1.0, 2.0, 4.0, 7.0, 0.0))}
    found = []
    for rank in range(4):
        pace = Pace(sites=((0, 1), (2, 3), (4,)))
        pace.begin(14)
        pace.counted(reports, rank)
        pace.period_ended()
        found.append(pace.steps)
    assert found == [14, 14, 4, 4]


def test_where_exchanges_do_not_wait_a_rank_comes_early() -> None:
    """Broken: a rank at its own pace would come too late to each exchange that does not wait for it."""
    pace = Pace(in_time=True)
    pace.begin(10)
    for slower, steps in ((1.0, 10), (3.85, 2), (3.5, 3), (1e6, 1)):
        pace.counted({0: NOTHING._replace(step_s=1.0), 1: NOTHING._replace(step_s=slower)}, 1)
        pace.period_ended()
        assert pace.steps == steps
