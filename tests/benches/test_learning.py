"""What the benchmarks of learning rest on: who is in which bucket, when a target is reached, and that the guard's demonstration
can fail."""

from __future__ import annotations

import math

import msgspec

from benches.delays import cases, guarding, tasks
from benches.delays.guarding import LATE, UNWATCHED, WATCHED, learned, stability
from benches.delays.learning import Way, _reached, bucket_at, grouped
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Due, Schedule, Turn
from hocket.planning.default import by_hosts, default_plan
from hocket.tools.demo.models import DigitsNet

RATE = guarding.CASES[0].rate


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
    groups = grouped(model, Way(schedule, at, 1.0))
    assert len(groups) == len(plan.buckets)
    assert sorted(id(each) for group in groups for each in group) == sorted(map(id, model.parameters()))
    assert any(each is next(model.parameters()) for each in groups[at(0.0)])
    synchronous = grouped(model, Way(Schedule(), lambda _: 0, 1.0))
    assert len(synchronous) == 1


def test_a_target_is_reached_or_never() -> None:
    """Broken: a contender that does not learn would seem fast."""
    assert _reached([3.0, 2.0, 1.0], 2.0) == 20
    assert _reached([3.0, math.inf], 2.0) == math.inf


def test_the_guards_demonstration_shows_what_it_says() -> None:
    """Broken: rows of the guard would be met by a task in which nothing diverges."""
    task = tasks.bowl()
    synchronous = learned(task, RATE, 120, seed=1, schedule=Schedule(), settings=UNWATCHED)
    unguarded = learned(task, RATE, 120, seed=1, schedule=LATE, settings=UNWATCHED)
    watched = learned(task, RATE, 120, seed=1, schedule=LATE, settings=WATCHED)
    assert unguarded.later_loss > 1e6 * synchronous.later_loss
    assert watched.updates is not None
    assert watched.updates <= 30
    assert watched.later_loss < 1.0
    assert stability(task, RATE, 1) > 1
    assert stability(task, guarding.CASES[0].benign_rate, 1) <= 1


def test_a_schedule_is_learned_with_its_own_rate() -> None:
    """Broken: merged updates would be stepped as single ones, in benchmarks alone."""
    task = tasks.bowl()
    merged = Schedule(period=2, turns=((Turn(first=0, last=1, due=Due(iteration=1)),),), rate="linear")
    slow = msgspec.structs.replace(merged, rate="one")
    found = [learned(task, 0.02, 60, seed=1, schedule=each, settings=UNWATCHED) for each in (merged, slow)]
    assert found[0].loss < 0.7 * found[1].loss
