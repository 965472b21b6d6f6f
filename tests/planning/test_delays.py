"""Whether `hocket plan` uses merged or late gradients: where they pay, as far as the promise goes, and nowhere else."""

from __future__ import annotations

import msgspec
import pytest

from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.plan import Gathered, Plan, Schedule
from hocket.artefacts.plan_check import check
from hocket.artefacts.profile import Gradient, Profile
from hocket.artefacts.promise import EXACT, ROUNDED, Promise
from hocket.artefacts.schedule_check import divided
from hocket.planning import delays, search
from hocket.training.buckets import check_runs
from hocket.training.gradients import Gradient as Trained


def profile(compute_s: float) -> Profile:
    """Eight layers of a million elements."""
    gradients = tuple(
        Gradient(
            name=f"layer.{at}",
            shape=(1_000_000,),
            dtype="f32",
            ready_s=compute_s * (1 / 3 + (8 - at) / 12),
            needed_s=compute_s * at / 24,
        )
        for at in range(8)
    )
    return Profile(
        model="layers",
        world=4,
        steps=10,
        forward_s=compute_s / 3,
        backward_s=2 * compute_s / 3,
        optimizer_s=0.0,
        step_s=compute_s,
        gradients=gradients,
    )


def planned(compute_s: float, promise: Promise) -> tuple[Plan, Plan]:
    """On links of 1 Gbit/s: without, and with what the promise allows beyond."""
    hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abcd")
    of = profile(compute_s)
    found = search.considered(Cluster(hosts=hosts), of, 4, promise=promise)
    plain = found.explained(found.best)
    return plain, delays.scheduled(plain, found.question.graph, of, promise, "sqrt")


@pytest.mark.parametrize(
    ("promise", "merge", "delay"),
    [
        (Promise("merged", merge=2), 2, 0),
        (Promise("delayed", delay=1), 1, 1),
        (Promise("delayed", delay=1, merge=3), 3, 1),
    ],
)
def test_iterations_get_shorter_as_far_as_the_promise_goes(promise: Promise, merge: int, delay: int) -> None:
    """Broken: users would be refused a gain that they allowed, or get gradients that are later than they allowed."""
    plain, plan = planned(0.15, promise)
    assert plan.predicted_step_s < delays.FASTER * plain.predicted_step_s
    assert plan.promise == promise.level
    assert plan.schedule.delay_max <= delay
    assert 1 <= delays.merge_of(plan.schedule) <= merge
    assert (delays.merge_of(plan.schedule), plan.schedule.delay_max) != (1, 0)
    check(plan)
    check_runs(
        plan, {name: Trained(name, (1_000_000,), "f32") for name in (f"layer.{at}" for at in range(8))}
    )
    assert "instead of" in plan.reason
    assert "updates per iteration" in plan.reason


def test_where_computation_hides_everything_nothing_is_late() -> None:
    """Broken: training would be changed for nothing."""
    plain, plan = planned(20.0, Promise("delayed", delay=1, merge=2))
    assert plan.schedule == plain.schedule
    assert plan.promise == plain.promise
    assert "would gain nothing" in plan.reason


def test_parts_of_a_gradient_have_the_same_turns() -> None:
    """Broken: `hocket plan` would write plans that no session runs."""
    plain, _ = planned(0.15, EXACT)
    first = plain.buckets[0]
    part = first.parts[0]
    stop = 1_000_000 if part.stop is None else part.stop
    halves = (
        msgspec.structs.replace(
            first, parts=(msgspec.structs.replace(part, stop=400_000),), elements=400_000, priority=100
        ),
        msgspec.structs.replace(
            first,
            parts=(msgspec.structs.replace(part, start=400_000, stop=stop), *first.parts[1:]),
            elements=first.elements - 400_000,
        ),
    )
    cut = msgspec.structs.replace(plain, buckets=(*halves, *plain.buckets[1:]))
    hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abcd")
    promise = Promise("delayed", delay=1, merge=3)
    question = search.considered(Cluster(hosts=hosts), profile(0.15), 4, promise=promise).question
    plan = delays.scheduled(cut, question.graph, profile(0.15), promise, "linear")
    assert plan.schedule.turns
    assert divided(plan.schedule, [bucket.variables for bucket in plan.buckets]) is None
    check(plan)


def test_rows_are_neither_merged_nor_late() -> None:
    """Broken: `hocket plan` would write plans that no session runs."""
    plain, _ = planned(0.15, EXACT)
    rows = msgspec.structs.replace(plain.buckets[0], route=Gathered(rows=10, row_elements=1))
    sparse = msgspec.structs.replace(plain, buckets=(rows, *plain.buckets[1:]))
    hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abcd")
    promise = Promise("delayed", delay=1)
    question = search.considered(Cluster(hosts=hosts), profile(0.15), 4, promise=promise).question
    plan = delays.scheduled(sparse, question.graph, profile(0.15), promise, "linear")
    assert plan.schedule == plain.schedule
    assert "neither merged nor late" in plan.reason


@pytest.mark.parametrize("promise", [EXACT, ROUNDED])
def test_lesser_promises_have_no_schedules(promise: Promise) -> None:
    """Broken: results would be further from DDP's than was asked for."""
    plain, plan = planned(0.15, promise)
    assert plan is plain
    assert plan.schedule in (Schedule(), Schedule(overlap="gates"))
