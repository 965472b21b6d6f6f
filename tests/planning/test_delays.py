"""Whether `hocket plan` uses merged or late gradients: where they pay, as far as the promise goes, and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest

from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.learning import Learning, learning_of
from hocket.artefacts.plan import Gathered, Plan, Schedule
from hocket.artefacts.plan_check import check
from hocket.artefacts.profile import Gradient, Profile
from hocket.artefacts.promise import EXACT, ROUNDED, Promise
from hocket.artefacts.schedule_check import divided
from hocket.errors import UsageError
from hocket.planning import admission, alone, delays, schedules, search
from hocket.planning.cost import predict_on
from hocket.planning.guard import stability_limit
from hocket.planning.links import link_graph
from hocket.planning.reason import seconds
from hocket.planning.routes import reduces_means
from hocket.planning.walk import Rule
from hocket.settings import Guard
from hocket.training.memory.gradients import Gradient as Trained
from hocket.training.memory.runnable import check_runs

EQUAL = (1_000_000,) * 8
"""Elements of layers."""

LATER_LARGER = (10_000,) * 4 + (2_000_000,) * 4


def profile(compute_s: float, sizes: Sequence[int] = EQUAL) -> Profile:
    gradients = tuple(
        Gradient(
            name=f"layer.{at}",
            shape=(size,),
            dtype="f32",
            ready_s=compute_s * (1 / 3 + (8 - at) / 12),
            needed_s=compute_s * at / 24,
        )
        for at, size in enumerate(sizes)
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


def planned(
    compute_s: float,
    promise: Promise,
    learning: Learning | None = None,
    *,
    rate: Rule | None = "sqrt",
    guard: Guard = "full",
    sizes: Sequence[int] = EQUAL,
    knows_layers: bool = True,
) -> tuple[Plan, Plan]:
    """On links of 1 Gbit/s: without, and with what the promise allows beyond. `knows_layers`: the profile says when they run."""
    hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abcd")
    of = msgspec.structs.replace(profile(compute_s, sizes), learning=learning)
    if not knows_layers:
        gradients = tuple(msgspec.structs.replace(each, needed_s=0.0) for each in of.gradients)
        of = msgspec.structs.replace(of, gradients=gradients)
    found = search.considered(Cluster(hosts=hosts), of, 4, promise=promise)
    plain = found.explained(found.best)
    return plain, delays.scheduled(plain, found.question.graph, of, promise, rate, guard=guard)


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
    assert plan.predicted_step_s < alone.FASTER * plain.predicted_step_s
    assert plan.promise == promise.word
    assert plan.schedule.delay_max <= delay
    assert 1 <= schedules.merge_of(plan.schedule) <= merge
    assert (schedules.merge_of(plan.schedule), plan.schedule.delay_max) != (1, 0)
    check(plan)
    check_runs(
        plan, {name: Trained(name, (1_000_000,), "f32") for name in (f"layer.{at}" for at in range(8))}
    )
    assert "instead of" in plan.reason
    # Where an epoch ends, late turns are merged, too.
    assert plan.schedule.rate != "one"
    assert "updates per iteration" in plan.reason


def test_where_computation_hides_everything_nothing_is_late() -> None:
    """Broken: training would be changed for nothing."""
    plain, plan = planned(20.0, Promise("delayed", delay=1, merge=2))
    assert plan.schedule == plain.schedule
    assert plan.promise == plain.promise
    assert "would gain nothing" in plan.reason


@pytest.mark.parametrize("compute_s", [0.08, 0.15, 0.2, 0.25])
def test_late_gradients_are_compared_with_the_best_synchronous_iteration(compute_s: float) -> None:
    """Broken: gradients would be late although gates hide nearly as much, and training would be changed for nothing."""
    plain, plan = planned(compute_s, Promise("delayed", delay=1))
    _, merged = planned(compute_s, Promise("merged"))
    # Nothing is merged: what is left is the best synchronous plan.
    assert merged.schedule == Schedule(overlap="gates")
    assert merged.predicted_step_s <= alone.FASTER * plain.predicted_step_s
    assert plan.schedule.turns
    assert plan.predicted_step_s <= alone.FASTER * merged.predicted_step_s
    assert f"instead of {seconds(merged.predicted_step_s)}" in plan.reason
    assert plan.buckets == plain.buckets


def test_a_plan_whose_gates_hide_as_much_has_gates_and_nothing_late() -> None:
    """Broken: a user who allows late gradients would get them where synchronous updates are as fast."""
    promise = Promise("delayed", delay=1)
    plain, plan = planned(0.23, promise, sizes=LATER_LARGER)
    assert plan.schedule == Schedule(overlap="gates")
    assert plan.promise == plain.promise
    assert plan.predicted_step_s <= alone.FASTER * plain.predicted_step_s
    assert [each.priority for each in plan.buckets] == [4, 3, 2, 1, 0]
    assert plan.label.endswith("at gates")
    assert "At gates" in plan.reason
    assert "would gain nothing" in plan.reason
    check(plan)


def test_gates_are_for_profiles_that_say_when_layers_run() -> None:
    """Broken: a job's own profile knows nothing of layers, and would be promised an overlap that there is not."""
    _, plan = planned(0.23, Promise("merged"), sizes=LATER_LARGER, knows_layers=False)
    assert plan.schedule == Schedule()


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


def with_rows(of: Profile) -> Plan:
    """Late by one, where that gains: of a plan whose first bucket travels as rows."""
    hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abcd")
    promise = Promise("delayed", delay=1)
    found = search.considered(Cluster(hosts=hosts), of, 4, promise=promise)
    plain = found.explained(found.best)
    rows = msgspec.structs.replace(plain.buckets[0], route=Gathered(rows=10, row_elements=1))
    buckets = (rows, *plain.buckets[1:])
    graph = found.question.graph
    step_s = predict_on(buckets, graph, of).step_s
    evidence = msgspec.structs.replace(plain.evidence, predicted_step_s=step_s)
    plan = msgspec.structs.replace(plain, buckets=buckets, evidence=evidence)
    return delays.scheduled(plan, graph, of, promise, "linear")


def test_sparse_gradients_are_neither_merged_nor_late() -> None:
    """Broken: `hocket plan` would write plans that no session runs."""
    of = profile(0.15)
    sparse = tuple(msgspec.structs.replace(each, sparse=True, touched=10) for each in of.gradients)
    hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abcd")
    plain, _ = planned(0.15, EXACT)
    rows = msgspec.structs.replace(plain.buckets[0], route=Gathered(rows=10, row_elements=1))
    plan = msgspec.structs.replace(plain, buckets=(rows, *plain.buckets[1:]))
    of = msgspec.structs.replace(of, gradients=sparse)
    question = search.considered(Cluster(hosts=hosts), profile(0.15), 4).question
    found = delays.scheduled(plan, question.graph, of, Promise("delayed", delay=1), "linear")
    assert found.buckets == plan.buckets
    assert found.schedule == plain.schedule
    assert "neither merged nor late" in found.reason


def test_tables_travel_whole_where_late_gradients_gain_more_than_rows() -> None:
    """Broken: a model with a table of words would never gain from what its promise allows."""
    plan = with_rows(profile(0.15))
    assert plan.schedule.delay_max == 1
    assert all(reduces_means(bucket) for bucket in plan.buckets)
    assert "whole tables" in plan.reason
    assert "rows as whole tables" in plan.label
    check(plan)


def test_rows_stay_where_they_gain_more_than_late_gradients() -> None:
    """Broken: a large table would travel whole, ten times as long as all the rest."""
    plan = with_rows(profile(0.05, (200_000_000, *EQUAL)))
    assert plan.schedule == Schedule()
    assert isinstance(plan.buckets[0].route, Gathered)
    assert "neither merged nor late" in plan.reason


@pytest.mark.parametrize("promise", [EXACT, ROUNDED])
def test_lesser_promises_have_no_schedules(promise: Promise) -> None:
    """Broken: results would be further from DDP's than was asked for."""
    plain, plan = planned(0.15, promise)
    assert plan is plain
    assert plan.schedule in (Schedule(), Schedule(overlap="gates"))


LATE = Promise("uncorrected", uncorrected=1, merge=2)
MOMENTUM = 0.9


def sgd(curvature: float | None, rate: float = 0.1) -> Learning:
    return Learning(
        optimizer="SGD",
        rate=rate,
        momentum=MOMENTUM,
        ranks=4,
        drift=1e-3,
        noise=1e-3,
        losses=(2.3,),
        curvature=curvature,
    )


def curvature_at(share: float) -> float:
    """Of the largest one with which gradients that are an update late converge."""
    return share * stability_limit(1, MOMENTUM) / 0.1


@pytest.mark.parametrize("share", [1.2, 5.0, 30.0])
def test_a_rate_between_the_limits_is_refused_when_a_plan_is_made(share: float) -> None:
    """Broken: training would diverge with the plan, and not without (row R6)."""
    _, plan = planned(0.15, Promise("uncorrected", uncorrected=1), sgd(curvature_at(share)), rate=None)
    assert 0.1 * curvature_at(share) < stability_limit(0, MOMENTUM)
    assert plan.schedule == Schedule(overlap="gates")
    (refused,) = plan.evidence.refused
    failed = [check for check in refused.checks if check.passed is False]
    assert [check.name for check in failed] == ["stability"]
    assert f"stability {failed[0].value:.4g}: limit {failed[0].limit:.4g}, exceeded" in plan.reason


@pytest.mark.parametrize(("scale", "merges"), [(None, True), (400.0, True), (1.0, False)])
def test_merged_iterations_are_worth_their_noise(scale: float | None, merges: bool) -> None:
    """Broken: iterations would be merged that had little noise to average, and a job would wait less and learn less."""
    learning = msgspec.structs.replace(sgd(0.1), drift=None, noise=None, noise_scale=scale)
    _, plan = planned(0.15, Promise("merged", merge=2), learning, rate=None)
    assert (schedules.merge_of(plan.schedule) == 2) == merges
    assert ("of a synchronous one's progress" in plan.reason) == (scale == 400)
    if scale is None:
        assert "efficiency unknown, counted as 1" in plan.reason
        assert plan.evidence.efficiency is None
    else:
        assert (plan.evidence.efficiency == 1.0) == (not merges)


@pytest.mark.parametrize(("share", "late"), [(5.0, 1), (30.0, 0)])
def test_own_gradients_first_are_stable_where_lateness_alone_is_not(share: float, late: int) -> None:
    """Broken: the plan would keep late gradients from a training that goes well with them, or let one diverge."""
    _, plan = planned(0.15, Promise("delayed", delay=1), sgd(curvature_at(share)), rate=None)
    assert plan.schedule.delay_max == late
    assert (plan.promise == "delayed") == (late > 0)
    assert plan.schedule.steps == ("own first" if late else "one")
    assert ("while each rank goes on with its own" in plan.reason) == (late > 0)
    # Eight layers of 4 MB in two slots: one more slot, two of sums, gradients, parameters and momentum.
    assert ("That takes 192.0 MB more memory" in plan.reason) == (late > 0)


def test_the_next_safer_schedule_takes_the_place_of_a_refused_one() -> None:
    """Broken: a job would wait for its network although a schedule in time would do, or late gradients would diverge."""
    _, unguarded = planned(0.15, LATE, sgd(curvature_at(3)), rate=None, guard="off")
    _, plan = planned(0.15, LATE, sgd(curvature_at(3)), rate=None)
    assert unguarded.schedule.delay_max == 1
    assert unguarded.evidence.checks == ()
    assert plan.schedule.delay_max == 0
    assert schedules.merge_of(plan.schedule) == 2
    assert (plan.promise, plan.schedule.steps) == ("delayed", "own first")
    assert {check.passed for check in plan.evidence.checks} == {True}
    assert "late" in plan.evidence.refused[0].label
    assert "Refused by the guard" in plan.reason


def test_a_schedule_that_passes_says_which_limit_is_closest() -> None:
    """Broken: nobody could tell how near to a limit a training is."""
    _, plan = planned(0.15, LATE, sgd(curvature_at(0.2)), rate=None)
    assert plan.schedule.delay_max == 1
    assert plan.evidence.refused == ()
    near = admission.closest(plan.evidence.checks)
    assert near is not None
    assert near.name == "stability"
    assert "stability is closest to its limit" in plan.reason
    assert plan.schedule.rate in ("linear", "one")


def test_safer_schedules_come_with_the_plan() -> None:
    """Broken: a training that goes wrong would have nothing but synchronous updates to go back to."""
    _, plan = planned(0.15, LATE, sgd(curvature_at(0.2)), rate=None)
    check(plan)
    assert plan.safer
    risks = [admission.risk_of(each) for each in (plan.schedule, *plan.safer)]
    assert all(after <= before / 2 for before, after in pairwise(risks))
    assert all(schedules.merge_of(each) > 1 or each.delay_max for each in plan.safer)


@pytest.mark.parametrize("learning", [None, sgd(None)])
def test_an_unknown_curvature_is_said_with_its_risk(learning: Learning | None) -> None:
    """Broken: a check that nobody made would count as passed, in silence."""
    _, plan = planned(0.15, Promise("uncorrected", uncorrected=1), learning, rate=None)
    assert plan.schedule.delay_max == 1
    assert "Not known: " in plan.reason
    assert "stability" in plan.reason
    assert "38 times smaller" in plan.reason
    unknown = {check.name: check.passed for check in plan.evidence.checks}
    assert unknown["stability"] is None


def test_an_adaptive_optimizer_takes_the_root_and_has_no_walk() -> None:
    """Broken: Adam would be judged as if it were SGD, or step twice as far as a batch of twice the size should."""
    learning = learning_of("adam,rate=0.001,loss=2.3,drift=1,noise=1")
    assert learning.rate == pytest.approx(1e-4)
    _, plan = planned(0.15, Promise("merged", merge=2), learning, rate=None)
    assert plan.schedule.rate == "sqrt"
    assert "is of SGD, not of adam" in plan.reason


def test_the_papers_guard_enlarges_its_windows() -> None:
    """Broken: `--guard paper` would not be DeFT's preserver."""
    _, plan = planned(
        0.15, Promise("uncorrected", uncorrected=8, merge=8), sgd(None), rate=None, guard="paper"
    )
    assert [check.name for check in plan.evidence.checks] == ["ratio"]
    assert plan.evidence.checks[0].passed
    steep = msgspec.structs.replace(sgd(None, rate=0.5), drift=3.0)
    _, enlarged = planned(
        0.15, Promise("uncorrected", uncorrected=8, merge=8), steep, rate="one", guard="paper"
    )
    # It does not look at how late gradients are.
    assert schedules.merge_of(enlarged.schedule) < schedules.merge_of(plan.schedule)
    assert enlarged.evidence.checks[0].passed
    with pytest.raises(UsageError, match="the profile lacks"):
        planned(0.15, LATE, None, guard="paper")


ONE_LARGE = (100_000,) * 3 + (6_000_000,) + (100_000,) * 4
"""One layer has most of the elements, and takes longer on links than any window of computation."""


@pytest.mark.parametrize(
    "promise", [Promise("uncorrected", uncorrected=8, merge=8), Promise("delayed", delay=2, merge=4)]
)
def test_the_papers_guard_cuts_what_fits_no_window(promise: Promise) -> None:
    """Broken: `--guard paper` would refuse what the paper's partition rule makes possible, or write a plan that no job runs."""
    plain, plan = planned(0.15, promise, sgd(None), rate=None, guard="paper", sizes=ONE_LARGE)
    assert plan.schedule.turns
    assert len(plan.buckets) > len(plain.buckets)
    check_runs(
        plan,
        {
            each.name: Trained(each.name, each.shape, each.dtype)
            for each in profile(0.15, ONE_LARGE).gradients
        },
    )
    assert f"{len(plan.buckets)} buckets travel in place of {len(plain.buckets)}" in plan.reason
    assert plan.evidence.checks[0].passed
    # Its schedules to retreat to are of the same buckets.
    for schedule in (plan.schedule, *plan.safer):
        assert len(schedule.turns) == len(plan.buckets)


def test_the_planner_takes_defts_parts_where_they_are_the_best() -> None:
    """Broken: DeFT's schedule would be left out because of one long bucket, though it makes the shortest iterations."""
    promise = Promise("uncorrected", uncorrected=8, merge=8)
    plain, plan = planned(0.15, promise, sgd(None), rate=None, sizes=ONE_LARGE)
    assert len(plan.buckets) > len(plain.buckets)
    assert plan.predicted_step_s == pytest.approx(0.15, rel=0.01)
    graph = link_graph(Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abcd")), 4)
    assert schedules.steady(plan, graph, profile(0.15, ONE_LARGE)).iteration_s == pytest.approx(
        plan.predicted_step_s
    )


def test_the_papers_guard_refuses_what_no_rule_helps() -> None:
    """Broken: planning would end without a word on why nothing is late, or hint at what does not help."""
    with pytest.raises(UsageError, match="nor do parts fit") as refused:
        planned(0.002, Promise("uncorrected", uncorrected=8, merge=8), sgd(None), rate=None, guard="paper")
    assert "hint: leave out the guard `paper`" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rmsprop,rate=1", "sgd or adam"),
        ("sgd", "rate=… is missing"),
        ("sgd,rate=fast", "is a number"),
        ("sgd,rate=1,speed=2", "is not one of"),
        ("sgd,rate=1,momentum=1", "< 1"),
        ("sgd,rate=-1", ">= 0"),
    ],
)
def test_what_is_no_learning_is_named(text: str, said: str) -> None:
    """Broken: the guard would judge by numbers that nobody meant."""
    with pytest.raises(UsageError, match=said):
        learning_of(text)
