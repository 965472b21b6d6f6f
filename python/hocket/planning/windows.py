"""Windows of DeFT's scheduler, and its partition rule.

Forward and backward of an iteration are a window each, with a knapsack for every link (DeFT, sections III-A and III-C). Where each
bucket keeps to one network card, the cards are the links; buckets striped over cards take some of all of them at once, so these are
one link. A bucket that is longer than every window would never travel, so the paper cuts buckets until the longest fits into the
smallest knapsack (III-D).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from hocket import _native
from hocket.artefacts.network import Network
from hocket.artefacts.plan import Bucket, Part, Plan
from hocket.artefacts.profile import Profile
from hocket.planning import ways
from hocket.planning.buckets import needed_s
from hocket.planning.cost import demand, pieces
from hocket.planning.reason import seconds

PART_ELEMENTS = 6_500_000
"""Limit on a part's elements, from the paper."""

PARTS_MAX = 32
"""Limit on parts that are added to a plan: with a hundred buckets, DeFT's scheduler takes minutes."""


class Timed(NamedTuple):
    """Buckets for DeFT's scheduler, the input side first: index in the plan, and seconds of forward, backward and transfer on each
    link, infinite where a bucket cannot travel."""

    order: list[int]
    buckets: list[tuple[float, float, Sequence[float]]]


def timed(plan: Plan, graph: Network, profile: Profile) -> Timed:
    """Times of a plan's buckets. Raises UsageError for a gradient that the profile lacks."""
    busy_s = _busy_s(plan.buckets, graph, profile, plan.workers, apart=_keeps_apart(plan, graph))
    order, forward_s, backward_s = _computed_s(plan.buckets, profile)
    return Timed(order, list(zip(forward_s, backward_s, [busy_s[at] for at in order], strict=True)))


def views(plan: Plan, graph: Network) -> tuple[bool, ...]:
    """Return the ways in which links may be told to DeFT's scheduler. False: all cards are one; True: each bucket keeps to a
    card."""
    if not graph.cards:
        return (False,)
    if _keeps_apart(plan, graph):
        return (True,)
    return (False, True) if len(graph.cards) <= _native.PACKED_LINKS_MAX else (False,)


def fitted(
    plan: Plan, graph: Network, profile: Profile, *, apart: bool, capacity_factor: float = 1.0
) -> Plan | None:
    """Return the plan with its buckets cut by the partition rule, until each has at most PART_ELEMENTS and is shorter than the
    smallest knapsack; than the largest one, if latency and the limits on parts forbid that. None: they forbid both.

    Windows are `capacity_factor` times computation. `apart`: each bucket keeps to one card, of those it may use the one that the
    packing gives it.

    Raises UsageError for a gradient that the profile lacks.
    """
    longest_s = _longest_s(plan.buckets, graph, profile, plan.workers, apart=apart)
    tick_s = (profile.forward_s + profile.backward_s) / _native.STEP_TICKS
    for window_s in sorted(windows_s(plan, profile)):
        # What is rounded to ticks also fits.
        within_s = capacity_factor * window_s - 2 * tick_s
        cut = _cut(plan, longest_s, graph, profile, within_s, apart=apart) if within_s > 0 else None
        if cut is not None:
            return _on_a_card_each(cut, graph, profile) if apart else cut
    return None


def windows_s(plan: Plan, profile: Profile) -> tuple[float, float]:
    """Return how long forward and backward of a plan's buckets compute."""
    _, forward_s, backward_s = _computed_s(plan.buckets, profile)
    return math.fsum(forward_s), math.fsum(backward_s)


def starving(plan: Plan, graph: Network, profile: Profile, *, capacity_factor: float) -> str:
    """Return a message on the bucket that is the longest of a plan which no partition fits into windows."""
    gap_s = capacity_factor * max(windows_s(plan, profile))
    longest_s = _longest_s(plan.buckets, graph, profile, plan.workers, apart=False)
    at = max(range(len(longest_s)), key=longest_s.__getitem__)
    first, *others = plan.buckets[at].variables
    named = f"{first} and {len(others)} more" if others else first
    return (
        f"bucket {at} ({named}) takes {seconds(longest_s[at])} on its links, and no gap of computation is longer than "
        f"{seconds(gap_s)}, though windows were enlarged to {capacity_factor:.2g} times of it; nor do parts fit, of at least "
        f"{_native.PART_ELEMENTS_MIN} elements and {PARTS_MAX} more than the plan's: by DeFT's schedule its gradients would "
        "never be applied\n"
        "hint: leave out the guard `paper`: other schedules let such a bucket travel for several iterations"
    )


def _keeps_apart(plan: Plan, graph: Network) -> bool:
    return bool(graph.cards) and all(each.cards is not None and len(each.cards) == 1 for each in plan.buckets)


def _computed_s(buckets: Sequence[Bucket], profile: Profile) -> tuple[list[int], list[float], list[float]]:
    """Return the buckets, the input side first, and in this order how long forward and backward of each one's layers take."""
    known = {each.name: each.ready_s for each in profile.gradients}
    ready_s = [max(known[name] for name in bucket.variables) for bucket in buckets]
    needs_s = needed_s(buckets, profile)
    # The reverse order of backward, which ends at the input side.
    order = sorted(range(len(buckets)), key=lambda at: -ready_s[at])
    begins_s = [*(needs_s[at] for at in order), profile.forward_s]
    ends_s = [*(ready_s[at] for at in order), profile.forward_s]
    forward_s = [max(0.0, after - before) for before, after in itertools.pairwise(begins_s)]
    backward_s = [max(0.0, before - after) for before, after in itertools.pairwise(ends_s)]
    return order, forward_s, backward_s


def _longest_s(
    buckets: Sequence[Bucket],
    graph: Network,
    profile: Profile,
    workers: Collection[int] | None,
    *,
    apart: bool,
) -> list[float]:
    """Return by bucket the seconds on the slowest link that it may use."""
    busy_s = _busy_s(buckets, graph, profile, workers, apart=apart)
    return [max(filter(math.isfinite, each)) for each in busy_s]


def _busy_s(
    buckets: Sequence[Bucket],
    graph: Network,
    profile: Profile,
    workers: Collection[int] | None,
    *,
    apart: bool,
) -> list[list[float]]:
    """Return by bucket the seconds of the busiest resource of each link."""
    if not apart:
        return [[max(each[4], default=0.0)] for each in pieces(buckets, graph, profile, workers=workers)]
    alone = [demand(buckets, card, profile, workers=workers).pieces for card in graph.cards]
    return [
        [
            max(own[at][4], default=0.0) if bucket.cards is None or card in bucket.cards else math.inf
            for card, own in enumerate(alone)
        ]
        for at, bucket in enumerate(buckets)
    ]


def _cut(
    plan: Plan, longest_s: Sequence[float], graph: Network, profile: Profile, within_s: float, *, apart: bool
) -> Plan | None:
    """Return the plan with buckets cut until each is done within a time on every link that it may use; None: the limits on parts
    forbid that."""
    cut: list[list[Bucket]] = []
    for bucket, whole_s in zip(plan.buckets, longest_s, strict=True):
        parts, part_s = [bucket], whole_s
        while part_s > within_s or max(each.elements for each in parts) > PART_ELEMENTS:
            # At least one more; as many as would do if latency took nothing.
            count = max(
                len(parts) + 1,
                math.ceil(len(parts) * part_s / within_s),
                math.ceil(bucket.elements / PART_ELEMENTS),
            )
            if count > PARTS_MAX or bucket.elements < count * _native.PART_ELEMENTS_MIN:
                return None
            parts = list(_parts(bucket, count, profile))
            part_s = max(_longest_s(parts, graph, profile, plan.workers, apart=apart))
        cut.append(parts)
    if sum(map(len, cut)) - len(cut) > PARTS_MAX:
        return None
    urgent = sorted(range(len(cut)), key=lambda at: plan.buckets[at].priority)
    firsts = dict(zip(urgent, itertools.accumulate((len(cut[at]) for at in urgent), initial=0), strict=False))
    buckets = tuple(
        replace(each, priority=firsts[at] + place)
        for at, parts in enumerate(cut)
        for place, each in enumerate(parts)
    )
    return replace(plan, buckets=buckets)


def _parts(bucket: Bucket, count: int, profile: Profile) -> Iterator[Bucket]:
    """Yield so many buckets of equal size with the elements of one, in their order."""
    sizes = {each.name: each.elements for each in profile.gradients}
    known = [
        (part.variable, part.start, sizes[part.variable] if part.stop is None else part.stop)
        for part in bucket.parts
    ]
    ends = itertools.accumulate(stop - start for _, start, stop in known)
    placed = [
        (name, stop - end, end - (stop - start), end)
        for (name, start, stop), end in zip(known, ends, strict=True)
    ]
    for at in range(count):
        first, last = (bucket.elements * each // count for each in (at, at + 1))
        held = tuple(
            Part(variable=name, start=max(first, begin) + shift, stop=min(last, end) + shift)
            for name, shift, begin, end in placed
            if max(first, begin) < min(last, end)
        )
        yield replace(bucket, parts=held, elements=last - first)


def _on_a_card_each(plan: Plan, graph: Network, profile: Profile) -> Plan:
    if _keeps_apart(plan, graph):
        return plan
    busy_s = _busy_s(plan.buckets, graph, profile, plan.workers, apart=True)
    return ways.on_cards(plan, ways.assigned(busy_s), "a card each")
