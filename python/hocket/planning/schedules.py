"""Schedules of merged and late gradients for a plan's buckets: the best for each staleness, and DeFT's own.

The search is in `crates/plan/src/schedules`; this module makes its inputs from a plan, and artefacts from its results.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import msgspec

from hocket import _native
from hocket.artefacts.network import Network
from hocket.artefacts.plan import Bucket, Plan, Schedule
from hocket.artefacts.plan_check import check
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise
from hocket.errors import UsageError
from hocket.planning import efficiency
from hocket.planning.cards import Piece
from hocket.planning.cost import pieces
from hocket.planning.guard import Turns
from hocket.planning.reason import seconds
from hocket.planning.walk import Rule

OWN_STEPS = 1.5
"""Further steps of the optimizer in an iteration, and a copy, where own gradients go first."""


class Choice(NamedTuple):
    """A schedule, mean seconds of an iteration with it, and updates per iteration, mean over parameters."""

    schedule: Schedule
    iteration_s: float
    updates_per_iteration: float


def front(
    plan: Plan,
    graph: Network,
    profile: Profile,
    promise: Promise,
    *,
    gates: bool,
    rate: Rule,
    deft_factor: float | None = None,
) -> tuple[Choice, ...]:
    """Choices that a promise allows, the shortest iterations first: the Pareto front of iteration, updates and delay.

    The plan's own schedule is ignored. Ranks go on with their own gradients while means are late, unless the promise allows such
    lateness uncorrected alone. DeFT's schedule is a candidate if it keeps the promise's numbers. `gates`: whether forward can wait
    for each bucket alone. `rate`: rule of the schedules. `deft_factor`: only DeFT's schedule beside the synchronous one, with
    windows that are this multiple of computation.

    Raises ArtefactError for a plan that is not sound, UsageError for a gradient that the profile lacks.
    """
    check(plan)
    places = sorted(range(len(plan.buckets)), key=lambda at: plan.buckets[at].priority)
    urgent = tuple(plan.buckets[at] for at in places)
    merge, delay = promise.merge or 1, max(promise.delay or 0, promise.uncorrected or 0)
    described = pieces(urgent, graph, profile, workers=plan.workers)
    sizes = [bucket.elements for bucket in plan.buckets]
    # DeFT applies no gradient in its own iteration.
    own = _deft(urgent, profile, described, deft_factor or 1.0) if delay else None
    kept = own is not None and merge_of(own) <= merge and own.delay_max <= delay
    found = _native.schedule_front(
        described,
        needed_s=_needed_s(urgent, profile),
        backward_end_s=profile.forward_s + profile.backward_s,
        step_s=profile.step_s,
        delay_max=delay if deft_factor is None else 0,
        merge_max=merge if deft_factor is None else 1,
        gates=gates,
        # Parts of a gradient in different buckets have the same turns.
        together=any(count > 1 for count in Counter(chain(*(each.variables for each in urgent))).values()),
        others=[own] if own is not None and kept else [],
    )
    rated = (
        Choice(made, iteration_s, efficiency.updates(made, sizes))
        for schedule, iteration_s, _ in found
        for made in [_rated(_in_places(schedule, places), rate)]
    )
    return tuple(made for each in rated if (made := _stepped(each, profile, promise)) is not None)


def deft(
    plan: Plan, graph: Network, profile: Profile, *, rate: Rule, capacity_factor: float = 1.0
) -> Schedule:
    """DeFT's schedule of a plan's buckets, on the busiest resource of each; windows are `capacity_factor` times computation.

    Raises UsageError naming a bucket that is longer than every window.
    """
    check(plan)
    described = pieces(plan.buckets, graph, profile, workers=plan.workers)
    timed = _timed(plan.buckets, profile, described)
    order = _input_first(plan.buckets, profile)
    gap_s = capacity_factor * max(math.fsum(each[0] for each in timed), math.fsum(each[1] for each in timed))
    for at, (_, _, (busy_s,)) in zip(order, timed, strict=True):
        if busy_s > gap_s:
            raise UsageError(_starved(at, plan.buckets[at], busy_s, gap_s))
    staged = _native.staged_schedule(timed, capacity_factor=capacity_factor)
    return _rated(_in_places(staged, order), rate)


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
        needed_s=_needed_s(urgent, profile),
        backward_end_s=profile.forward_s + profile.backward_s,
        step_s=profile.step_s,
    )
    if plan.schedule.steps == "own first":
        iteration_s += OWN_STEPS * profile.optimizer_s
    sizes = [bucket.elements for bucket in plan.buckets]
    return Choice(plan.schedule, iteration_s, efficiency.updates(plan.schedule, sizes))


def by_need(buckets: Sequence[Bucket], profile: Profile) -> tuple[Bucket, ...]:
    """Reprioritise buckets by the time at which forward needs their parameters."""
    needed_s = _needed_s(buckets, profile)
    places = {at: place for place, at in enumerate(sorted(range(len(buckets)), key=needed_s.__getitem__))}
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


def _deft(
    buckets: Sequence[Bucket], profile: Profile, described: Sequence[Piece], factor: float
) -> Schedule | None:
    """Return DeFT's schedule; None if a bucket fits no window."""
    try:
        staged = _native.staged_schedule(_timed(buckets, profile, described), capacity_factor=factor)
    except UsageError:
        return None
    return _in_places(staged, _input_first(buckets, profile))


def _starved(at: int, bucket: Bucket, busy_s: float, gap_s: float) -> str:
    first, *others = bucket.variables
    named = f"{first} and {len(others)} more" if others else first
    return (
        f"bucket {at} ({named}) takes {seconds(busy_s)} on its links, and no gap of computation is longer than {seconds(gap_s)}: "
        "by DeFT's schedule its gradients would never be applied\n"
        "hint: leave out the guard `paper`: other schedules let such a bucket travel for several iterations; or cut it into parts"
    )


def _timed(
    buckets: Sequence[Bucket], profile: Profile, described: Sequence[Piece]
) -> list[tuple[float, float, Sequence[float]]]:
    """Forward, backward and transfer of each bucket, the input side first: differences between times of need and readiness."""
    order = _input_first(buckets, profile)
    needed_s = _needed_s(buckets, profile)
    begins_s = [*(needed_s[at] for at in order), profile.forward_s]
    ends_s = [*(described[at][0] - _native.BUCKET_S for at in order), profile.forward_s]
    forward_s = [max(0.0, after - before) for before, after in itertools.pairwise(begins_s)]
    backward_s = [max(0.0, before - after) for before, after in itertools.pairwise(ends_s)]
    busy_s = [[max(described[at][4], default=0.0)] for at in order]
    return list(zip(forward_s, backward_s, busy_s, strict=True))


def _input_first(buckets: Sequence[Bucket], profile: Profile) -> list[int]:
    """Buckets in the reverse order of backward, which ends at the input side."""
    ready_s = {each.name: each.ready_s for each in profile.gradients}
    return sorted(range(len(buckets)), key=lambda at: -max(ready_s[name] for name in buckets[at].variables))


def _needed_s(buckets: Sequence[Bucket], profile: Profile) -> list[float]:
    needed_s = {each.name: each.needed_s for each in profile.gradients}
    return [min(needed_s[name] for name in bucket.variables) for bucket in buckets]


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
    )


def _rated(schedule: Schedule, rate: Rule) -> Schedule:
    # At the end of an epoch, late turns are merged with the next ones.
    apart = merge_of(schedule) > 1 or schedule.delay_max
    return msgspec.structs.replace(schedule, rate=rate if apart else "one")
