"""Schedules of merged and late gradients for a plan's buckets: the best for each staleness, and DeFT's own.

The search is in `crates/plan/src/schedules`; this module makes its inputs from a plan, and artefacts from its results.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from hocket import _native
from hocket.artefacts.needs import declared, needs_of
from hocket.artefacts.network import Network
from hocket.artefacts.plan import Bucket, Plan, Schedule
from hocket.artefacts.plan_check import check
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise
from hocket.errors import UsageError
from hocket.planning import efficiency
from hocket.planning.buckets import needed_s
from hocket.planning.cost import pieces
from hocket.planning.guard import Turns
from hocket.planning.walk import Rule
from hocket.planning.windows import fitted, timed, views

OWN_STEPS = 1.5
"""Further steps of the optimizer in an iteration, and a copy, where own gradients go first."""

ALIKE = 1e-9
"""Difference of updates per iteration that counts for none."""


class Choice(NamedTuple):
    """A schedule, mean seconds of an iteration with it, updates per iteration, mean over parameters, and the buckets that it is
    for: the plan's, or those that DeFT's partition rule makes of them."""

    schedule: Schedule
    iteration_s: float
    updates_per_iteration: float
    buckets: tuple[Bucket, ...]


def front(
    plan: Plan,
    graph: Network,
    profile: Profile,
    promise: Promise,
    *,
    gates: bool,
    rate: Rule,
) -> tuple[Choice, ...]:
    """Choices that a promise allows, the shortest iterations first: the Pareto front of iteration, updates and delay.

    The plan's own schedule is ignored. Ranks go on with their own gradients while means are late, unless the promise allows such
    lateness uncorrected alone. DeFT's schedules of the buckets as they are, and of those that its partition rule makes of them, are
    candidates if they keep the promise's numbers. `gates`: whether forward can wait for each bucket alone. `rate`: rule of the
    schedules.

    Raises ArtefactError for a plan that is not sound, UsageError for a gradient that the profile lacks.
    """
    check(plan)
    places = sorted(range(len(plan.buckets)), key=lambda at: plan.buckets[at].priority)
    urgent = tuple(plan.buckets[at] for at in places)
    merge, delay = promise.merge or 1, _delay(promise)
    described = pieces(urgent, graph, profile, workers=plan.workers)
    sizes = [bucket.elements for bucket in plan.buckets]
    # DeFT applies no gradient in its own iteration.
    own = _kept(_papers(plan, graph, profile, rate), promise) if delay else []
    found = _native.schedule_front(
        described,
        needed_s=needed_s(urgent, profile),
        backward_end_s=profile.forward_s + profile.backward_s,
        step_s=profile.step_s,
        delay_max=delay,
        merge_max=merge,
        gates=gates,
        # Parts of a gradient in different buckets have the same turns.
        together=any(count > 1 for count in Counter(chain(*(each.variables for each in urgent))).values()),
        others=[_by_priority(each.schedule, places) for each in own if each.buckets == plan.buckets],
    )
    rated = [
        Choice(made, iteration_s, efficiency.updates(made, sizes), plan.buckets)
        for schedule, iteration_s, _ in found
        for made in [_rated(_in_places(schedule, places), rate)]
    ]
    parted = [each for each in own if each.buckets != plan.buckets]
    rated += [steady(each, graph, profile) for each in parted]
    allowed = [made for each in rated if (made := _stepped(each, profile, promise)) is not None]
    return tuple(_not_dominated(allowed) if parted else allowed)


def of_plans(plans: Sequence[Plan], graph: Network, profile: Profile, promise: Promise) -> list[Choice]:
    """Choices of the schedules of DeFT's plans that keep the promise's numbers."""
    predicted = [steady(each, graph, profile) for each in _kept(plans, promise)]
    return [made for each in predicted if (made := _stepped(each, profile, promise)) is not None]


def deft(
    plan: Plan, graph: Network, profile: Profile, *, rate: Rule, capacity_factor: float = 1.0
) -> Schedule:
    """DeFT's schedule of a plan's buckets as they are; windows are `capacity_factor` times computation.

    Raises UsageError naming a bucket, counted from the input side, that is longer than every window.
    """
    check(plan)
    times = timed(plan, graph, profile)
    staged = _native.staged_schedule(times.buckets, capacity_factor=capacity_factor)
    return _rated(_in_places(staged, times.order), rate)


def papers(
    plan: Plan, graph: Network, profile: Profile, *, rate: Rule, apart: bool, capacity_factor: float = 1.0
) -> Plan | None:
    """DeFT's plan: the buckets as its partition rule makes them of a plan's, with its schedule; windows are `capacity_factor` times
    computation. `apart`: each bucket keeps to one card. None: a bucket fits no window even in parts.

    Raises UsageError for a gradient that the profile lacks.
    """
    made = fitted(plan, graph, profile, apart=apart, capacity_factor=capacity_factor)
    if made is None:
        return None
    return _with(made, deft(made, graph, profile, rate=rate, capacity_factor=capacity_factor))


def steady(plan: Plan, graph: Network, profile: Profile) -> Choice:
    """Predict the plan's own schedule.

    Raises ArtefactError for a plan that is not sound, UsageError for a gradient that the profile lacks.
    """
    check(plan)
    places = sorted(range(len(plan.buckets)), key=lambda at: plan.buckets[at].priority)
    urgent = tuple(plan.buckets[at] for at in places)
    own = tuple(plan.schedule.turns[at] for at in places if plan.schedule.turns)
    iteration_s, _ = _native.schedule_steady(
        pieces(urgent, graph, profile, workers=plan.workers),
        msgspec.structs.replace(plan.schedule, turns=own),
        needed_s=needed_s(urgent, profile),
        backward_end_s=profile.forward_s + profile.backward_s,
        step_s=profile.step_s,
    )
    if plan.schedule.steps == "own first":
        iteration_s += OWN_STEPS * profile.optimizer_s
    sizes = [bucket.elements for bucket in plan.buckets]
    return Choice(plan.schedule, iteration_s, efficiency.updates(plan.schedule, sizes), plan.buckets)


def by_need(buckets: Sequence[Bucket], profile: Profile) -> tuple[Bucket, ...]:
    """Reprioritise buckets by the time at which forward needs their parameters."""
    needs_s = needed_s(buckets, profile)
    places = {at: place for place, at in enumerate(sorted(range(len(buckets)), key=needs_s.__getitem__))}
    return tuple(msgspec.structs.replace(bucket, priority=places[at]) for at, bucket in enumerate(buckets))


def merge_of(schedule: Schedule) -> int:
    """Return the largest number of merged iterations."""
    return max((turn.last - turn.first + 1 for each in schedule.turns for turn in each), default=1)


def turns(schedule: Schedule, bucket: int) -> Turns:
    """A bucket's turns in the guard's form."""
    if not schedule.turns:
        return Turns(1, ((0, 0, 0),))
    return Turns(
        schedule.period,
        tuple((turn.first, turn.last, turn.due.iteration) for turn in schedule.turns[bucket]),
        schedule.steps == "own first",
    )


def _papers(plan: Plan, graph: Network, profile: Profile, rate: Rule) -> list[Plan]:
    """DeFT's plans of different buckets: of those as they are, if each fits a window, and of those by its partition rule."""
    fit = (fitted(plan, graph, profile, apart=apart) for apart in views(plan, graph))
    different = {each.buckets: each for each in (plan, *fit) if each is not None}
    found = []
    for each in different.values():
        # One that fits no window.
        with contextlib.suppress(UsageError):
            found.append(_with(each, deft(each, graph, profile, rate=rate)))
    return found


def _with(plan: Plan, schedule: Schedule) -> Plan:
    made = msgspec.structs.replace(plan, schedule=schedule)
    return msgspec.structs.replace(made, promise=declared(needs_of(made)))


def _kept(plans: Sequence[Plan], promise: Promise) -> list[Plan]:
    """Plans whose schedules keep a promise's numbers."""
    merge, delay = promise.merge or 1, _delay(promise)
    return [each for each in plans if merge_of(each.schedule) <= merge and each.schedule.delay_max <= delay]


def _delay(promise: Promise) -> int:
    return max(promise.delay or 0, promise.uncorrected or 0)


def _not_dominated(choices: Sequence[Choice]) -> list[Choice]:
    """The fastest first, without those that another one is as good as in iteration, updates and delay."""
    front: list[Choice] = []
    for choice in sorted(choices, key=lambda each: each.iteration_s):
        late = choice.schedule.delay_max
        if not any(
            each.updates_per_iteration >= choice.updates_per_iteration - ALIKE
            and each.schedule.delay_max <= late
            for each in front
        ):
            front.append(choice)
    return front


def _by_priority(schedule: Schedule, places: Sequence[int]) -> Schedule:
    return msgspec.structs.replace(schedule, turns=tuple(schedule.turns[at] for at in places))


def _in_places(schedule: Schedule, order: Sequence[int]) -> Schedule:
    """Reorder turns listed in `order` by bucket."""
    listed = sorted(zip(order, schedule.turns, strict=True), key=lambda each: each[0])
    return msgspec.structs.replace(schedule, turns=tuple(turns for _, turns in listed))


def _stepped(choice: Choice, profile: Profile, promise: Promise) -> Choice | None:
    """Return a merged or late choice with own gradients first if the promise allows that, and the time that this takes. None: the
    promise allows the choice neither so nor uncorrected."""
    late, allowed = choice.schedule.delay_max, -1 if promise.delay is None else promise.delay
    waits = late > 0 or merge_of(choice.schedule) > 1
    if choice.schedule.overlap == "gates" or not waits or late > allowed:
        return choice if late <= (promise.uncorrected or 0) else None
    return Choice(
        msgspec.structs.replace(choice.schedule, steps="own first"),
        choice.iteration_s + OWN_STEPS * profile.optimizer_s,
        choice.updates_per_iteration,
        choice.buckets,
    )


def _rated(schedule: Schedule, rate: Rule) -> Schedule:
    # At the end of an epoch, late turns are merged with the next ones.
    apart = merge_of(schedule) > 1 or schedule.delay_max
    return msgspec.structs.replace(schedule, rate=rate if apart else "one")
