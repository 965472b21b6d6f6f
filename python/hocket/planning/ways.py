"""Choice of cards for each bucket of a plan, if all hosts have several: all cards, the fastest alone, or one for each bucket.

A bucket is done soonest if striped over all cards. On a single card its messages are longer, and cards need not end together.
DeFT gives each link a knapsack of its own (its section III-C). Here the times of each bucket on each card are the items' weights,
and the exact packing finds the shortest window into which all buckets fit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from hocket import _native
from hocket.artefacts.network import Network
from hocket.artefacts.plan import Bucket, Plan
from hocket.artefacts.profile import Profile
from hocket.planning.cost import demand, predict_on
from hocket.planning.reason import seconds

FASTER = 0.98
"""Ratio of step times below which chosen cards are preferred to all cards."""


def chosen(plan: Plan, graph: Network, profile: Profile) -> Plan:
    """Return the plan with the cards that make its step shortest; unchanged if hosts have one card each.

    Raises UsageError for a gradient that the profile lacks.
    """
    if not graph.cards:
        return plan
    striped, *others = candidates(plan, graph, profile)
    # Predict it by the same model as the others: links that never idle, card by card.
    named = msgspec.structs.replace(
        striped, buckets=_on(striped, [range(len(graph.cards))] * len(plan.buckets))
    )
    steps_s = {
        each.label: predict_on(each.buckets, graph, profile, workers=plan.workers).step_s
        for each in (named, *others)
    }
    best = min(others, key=lambda each: steps_s[each.label])
    if steps_s[best.label] >= FASTER * steps_s[striped.label]:
        return striped
    reason = (
        f" On these cards a step is predicted to take {seconds(steps_s[best.label])} instead of "
        f"{seconds(steps_s[striped.label])} on all."
    )
    return msgspec.structs.replace(best, reason=plan.reason + reason)


def candidates(plan: Plan, graph: Network, profile: Profile) -> tuple[Plan, ...]:
    """Plans with all buckets on all cards, on the fastest card, and each on the card that the packing gives it."""
    busy_s = busy_by_card(plan, graph, profile)
    totals_s = [sum(each[card] for each in busy_s) for card in range(len(graph.cards))]
    fastest = min(range(len(totals_s)), key=totals_s.__getitem__)
    return (
        plan,
        on_cards(plan, [fastest] * len(plan.buckets), f"card {fastest}"),
        on_cards(plan, assigned(busy_s), "a card each"),
    )


def on_cards(plan: Plan, cards: Sequence[int], label: str) -> Plan:
    """The plan with one card for each bucket."""
    buckets = _on(plan, [(card,) for card in cards])
    return msgspec.structs.replace(plan, buckets=buckets, label=f"{plan.label}, {label}")


def _on(plan: Plan, cards: Sequence[Sequence[int]]) -> tuple[Bucket, ...]:
    return tuple(
        msgspec.structs.replace(bucket, cards=tuple(each))
        for bucket, each in zip(plan.buckets, cards, strict=True)
    )


def busy_by_card(plan: Plan, graph: Network, profile: Profile) -> list[list[float]]:
    """Seconds of the busiest link of each card, by bucket, if the bucket used that card alone."""
    demands = [demand(plan.buckets, card, profile, workers=plan.workers) for card in graph.cards]
    links = [
        [at for at, link in enumerate(own.resources) if link < len(card.links)]
        for own, card in zip(demands, graph.cards, strict=True)
    ]
    return [
        [max(own.pieces[bucket][4][at] for at in on) for own, on in zip(demands, links, strict=True)]
        for bucket in range(len(plan.buckets))
    ]


def assigned(busy_s: Sequence[Sequence[float]]) -> list[int]:
    """Assign a link to each item, so that the last link is done as early as possible, given each item's seconds on each link,
    infinite where it may not go.

    Exact to a thousandth if the packings are proven.

    >>> assigned([[3.0, 5.0], [3.0, 5.0], [3.0, 5.0]])
    [1, 0, 0]
    """
    if not busy_s:
        return []
    links = range(len(busy_s[0]))
    # Every item on its best link, one after the other.
    upper_s = sum(min(each) for each in busy_s)
    lower_s, found = 0.0, [min(links, key=each.__getitem__) for each in busy_s]
    while upper_s - lower_s > 1e-3 * upper_s:
        middle_s = (lower_s + upper_s) / 2
        packed = _packed(busy_s, middle_s)
        if packed is None:
            lower_s = middle_s
        else:
            upper_s, found = middle_s, packed
    return found


def _packed(busy_s: Sequence[Sequence[float]], window_s: float) -> list[int] | None:
    """Assign a link to each item within a window; None if not all fit."""
    tick_s = window_s / _native.STEP_TICKS
    most = 2 * _native.STEP_TICKS
    items = [(0, [math.ceil(min(most, each / tick_s)) for each in own], 1) for own in busy_s]
    links, profit, _ = _native.pack(items, [_native.STEP_TICKS] * len(busy_s[0]))
    if profit < len(items):
        return None
    return [link for link in links if link is not None]
