"""What the benchmarks of learning rest on: who is in which bucket, when a target is reached, and that the guard's demonstration
can fail."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec
import pytest
import torch

from benches.delays import benign, cases, drifting, guarding, kept, tasks
from benches.delays.guarding import UNWATCHED, WATCHED, learned, stability
from benches.delays.kept import Kept
from benches.delays.learner import Alone, plan_of_schedules
from benches.delays.learning import HAND_MADE, Clock, bucket_at, rows, schedule_of
from benches.delays.study import SEEDS, SYNCHRONOUS, Curves, Kind, Study, Way, grouped, lowest, upper_bound
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Due, Schedule, Turn
from hocket.job.rendezvous import Job
from hocket.planning.default import by_hosts, default_plan
from hocket.tools.demo.models import DigitsNet
from hocket.training.guard.gauge import Gauge
from hocket.training.guard.oversight import Oversight
from hocket.training.memory.framework import Framework

pytestmark = pytest.mark.tools


def test_parameters_have_the_turns_of_the_same_share_of_the_measured_model() -> None:
    """Broken: a schedule with late turns for some layers would be learned with others late."""
    profile = cases.transformer()
    gradients = [Gradient(each.name, each.shape, each.dtype) for each in profile.gradients]
    plan = default_plan(gradients[::-1], by_hosts(["a", "b"]))
    assert len(plan.buckets) > 1
    at = bucket_at(profile, plan)
    first, last = profile.gradients[0].name, profile.gradients[-1].name
    assert first in plan.buckets[at(0.0)].variables
    assert last in plan.buckets[at(1.0)].variables
    turns = (Turn(first=0, last=0, due=Due(iteration=1)),)
    schedule = Schedule(turns=(turns,) * len(plan.buckets), delay_max=1)
    model = DigitsNet()
    groups = grouped(model, Way(schedule, at))
    assert len(groups) == len(plan.buckets)
    assert sorted(id(each) for group in groups for each in group) == sorted(map(id, model.parameters()))
    assert any(each is next(model.parameters()) for each in groups[at(0.0)])
    synchronous = grouped(model, SYNCHRONOUS)
    assert len(synchronous) == 1


def test_a_target_is_reached_or_never() -> None:
    """Broken: a contender that does not learn would seem fast."""
    curves = Curves(0.1, ((4.0, 2.0, 1.0), (2.0, 2.0, 1.0)))
    assert curves.iterations_to(2.0) == 20
    assert curves.iterations_to(0.5) == math.inf
    assert curves.target == 2.0


def test_the_best_rate_is_inside() -> None:
    """Broken: a contender would be judged at the edge of a grid, where it could learn better beyond."""
    for centre in (0.001, 0.7, 40.0):
        found = lowest(lambda rate, centre=centre: abs(math.log(rate / centre)), 1.0)
        assert 2**-0.5 <= found / centre <= 2**0.5


def test_bounds_are_of_paired_differences() -> None:
    """Broken: noise that all contenders share would hide a difference, or one seed would decide."""
    assert upper_bound([0.5] * 5) == 0.5
    assert upper_bound([0.0, 0.1, 0.2, 0.3, 0.4]) == pytest.approx(0.2 + 1.533 * 0.158114 / 5**0.5, rel=1e-4)
    assert upper_bound([0.0, 0.0, 0.0, 0.0, math.inf]) == math.inf


def test_own_gradients_first_learn_where_lateness_diverges() -> None:
    """Broken: rows of learning would not show what own gradients are for."""
    task = tasks.bowl()
    kind = Kind(
        "SGD", lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=0.9), 0.2, "linear"
    )
    study = Study(task, kind, 60)
    late = [each for title, each in HAND_MADE.items() if title.startswith("late by 1")]
    first, uncorrected = (study.at(each.way, 0.4) for each in late)
    assert max(first.last) < 0.05
    assert min(uncorrected.last) > 1.0
    found = list(
        rows("lateness", "here", study, {"late by 1": late[0]._replace(iteration_s=0.5)}, Clock(1.0, 0.8))
    )
    assert [row.unit for row in found] == ["", "", "", ""]


@pytest.mark.parametrize("case", [guarding.CASES[0], guarding.OWN_CASES[0]])
def test_the_guards_demonstration_shows_what_it_says(case: guarding.Case) -> None:
    """Broken: rows of the guard would be met by a task in which nothing diverges."""
    task, late = case.task(), case.schedule
    synchronous = learned(task, case.rate, 120, seed=1, schedule=Schedule(), settings=UNWATCHED)
    unguarded = learned(task, case.rate, 120, seed=1, schedule=late, settings=UNWATCHED)
    watched = learned(task, case.rate, 120, seed=1, schedule=late, settings=WATCHED)
    assert unguarded.later_loss > 1e6 * synchronous.later_loss
    assert watched.updates <= 30
    assert watched.loss < 1.0
    assert stability(task, case.rate, 1, late) > 1
    assert stability(task, case.benign_rate, 1, late) <= 1


@pytest.mark.parametrize(("late", "logs"), [(0, True), (0, False), (1, True)])
def test_where_nothing_is_late_a_falling_loss_counts_alone(late: int, logs: bool) -> None:
    """Broken: merged updates would end because norms grow while a model begins to learn; or diverge where no loss is logged, or
    gradients are late."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    alone = Alone(optimizer, WATCHED)
    oversight = Oversight(cast(Framework, alone), cast(Job, alone), Gauge(), None)
    plan = plan_of_schedules(schedule_of(2, late))
    for step in range(50):
        if step in (0, 10):
            oversight.schedule(plan, step, 0)
        oversight.see(1.4 ** max(step - 9, 0))
        if logs:
            oversight.logged(2 * 0.97**step)
    assert (oversight.alarm is None) == (logs and not late)


def test_steps_alone_of_the_row_retreat_or_are_let_alone(tmp_path: Path) -> None:
    """Broken: the row would call a training benign that nobody judged, or a retreat by another run's numbers."""
    steep = replace(drifting.CASES[0], iterations=300)
    found = drifting.learned(steep, seed=1, guarded=True)
    assert found.retreated == 6
    assert found.exchanges[-1] == pytest.approx(294)
    assert drifting.Run.of(found.numbers) == found
    assert drifting.learned(steep, seed=1, guarded=False).losses[-1] == math.inf
    way = benign.WAYS[6]._replace(task=tasks.bowl, iterations=60)
    assert not benign.learned(way, 1).retreats
    one = Kept(tmp_path).curve("a key", lambda: (1.0, math.inf), (drifting,))
    assert Kept(tmp_path).curve("a key", lambda: (), (drifting,)) == one == (1.0, math.inf)
    assert Kept(tmp_path).curve("a key", lambda: (2.0,), (benign,)) == (2.0,)


def test_a_table_is_gathered_over_several_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken: hours of curves would be lost with a run that ends early, or one training's be taken for another's."""
    kind = Kind("SGD", lambda parameters, rate: torch.optim.SGD(parameters, lr=rate), 0.2, "linear")
    ways = [SYNCHRONOUS, HAND_MADE["late by 1, uncorrected"].way]
    computed: list[float] = []

    def study() -> Study:
        return Study(tasks.bowl(), kind, 20, Kept(tmp_path / "kept"))

    learned_here = Study._learned
    monkeypatch.setattr(Study, "_learned", lambda *given: computed.append(given[2]) or learned_here(*given))
    first = [study().at(way, rate) for way in ways for rate in (0.2, 1e6)]
    assert len(computed) == 4 * len(SEEDS)
    with (tmp_path / "kept" / "curves.jsonl").open("ab") as file:
        file.write(b'{"key": "cut o')
    assert [study().at(way, rate) for way in ways for rate in (0.2, 1e6)] == first
    assert len(computed) == 4 * len(SEEDS)
    # It diverges, which is kept, too.
    assert first[3].last[0] == math.inf
    monkeypatch.setattr(kept, "code", lambda _by: "other")
    study().at(ways[0], 0.2)
    assert study().at(ways[0], 0.2) == first[0]
    assert len(computed) == 5 * len(SEEDS)


def test_a_schedule_is_learned_with_its_own_rate() -> None:
    """Broken: merged updates would be stepped as single ones, in benchmarks alone."""
    task = tasks.bowl()
    merged = Schedule(period=2, turns=((Turn(first=0, last=1, due=Due(iteration=1)),),), rate="linear")
    slow = msgspec.structs.replace(merged, rate="one")
    found = [learned(task, 0.02, 60, seed=1, schedule=each, settings=UNWATCHED) for each in (merged, slow)]
    assert found[0].loss < 0.7 * found[1].loss
