"""Choice of plans to try: by predictions where these are reliable, otherwise by diversity.

The fidelity filter is AutoDist's (Zhang et al. 2020, algorithm 1), choice by score and diversity AutoTVM's (Chen et al. 2018,
section 5.3).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import AllReduce, Bucket, Gathered, Owned, Plan
from hocket.planning.routes import name

ACCURACY = 0.8
"""Fraction of pairs that predictions must order correctly to count as reliable."""
RECENT = 20
"""Number of latest trials from which reliability is judged."""
TRIALS_MIN = 4
DIVERSITY = 0.3
"""Weight of a plan of which nothing was tried, relative to the best score."""

Choice = tuple[str, tuple[int, ...], str, int]
"""Route of a variable, the route's numbers, codec, and the bit length of its bucket's size. The number of owners makes a
difference, which ranks own a part or their order does not."""


def reliable_above_s(trials: Sequence[tuple[float, float]]) -> float:
    """Predicted time above which plans are slower than plans predicted to be faster, for at least ACCURACY of the pairs; infinite
    if predictions are unreliable, or not known to be reliable.

    `trials`: predicted and measured seconds, the most recent last.

    >>> reliable_above_s([(1.0, 9.0), (1.1, 1.2), (2.0, 2.0), (3.0, 2.9), (4.0, 5.0)])
    inf
    >>> reliable_above_s([(1.0, 1.3), (1.1, 1.2), (1.2, 1.1), (2.0, 2.0), (3.0, 2.9)])
    2.0
    """
    recent = sorted(trials[-RECENT:])
    if len(recent) < TRIALS_MIN:
        return math.inf
    found, right, pairs = math.inf, 0, 0
    for at in range(len(recent) - 1, 0, -1):
        right += sum(measured < recent[at][1] for _, measured in recent[:at])
        pairs += at
        if right < ACCURACY * pairs:
            break
        found = recent[at][0]
    return found


def chosen(scored: Sequence[tuple[float, Plan]], tried: Iterable[Plan], count: int) -> list[Plan]:
    """Choose `count` plans by score (from 0) plus the fraction of the plan that no other plan has tried: greedily, which is at most
    37 % worse than the best set (Nemhauser et al. 1978)."""
    most = max((score for score, _ in scored), default=0.0)
    covered = {pair for plan in tried for pair in choices(plan).items()}
    left = [(score / most if most > 0 else 0.0, plan, choices(plan)) for score, plan in scored]
    found: list[Plan] = []
    while left and len(found) < count:
        gains = [value + DIVERSITY * _new(own, plan, covered) for value, plan, own in left]
        _, plan, own = left.pop(max(range(len(gains)), key=gains.__getitem__))
        covered |= set(own.items())
        found.append(plan)
    return found


def choices(plan: Plan) -> dict[tuple[str, int], Choice]:
    """Choices by variable and the number of the variable's part."""
    found: dict[tuple[str, int], Choice] = {}
    seen: Counter[str] = Counter()
    for bucket in plan.buckets:
        own = _choice(bucket)
        for part in bucket.parts:
            found[part.variable, seen[part.variable]] = own
            seen[part.variable] += 1
    return found


def _new(
    own: dict[tuple[str, int], Choice], plan: Plan, covered: set[tuple[tuple[str, int], Choice]]
) -> float:
    """Fraction of a plan's bytes whose choice is new."""
    fresh = {variable for (variable, part), how in own.items() if ((variable, part), how) not in covered}
    held = [(bucket, bucket.elements * ITEM_BYTES[bucket.dtype]) for bucket in plan.buckets]
    new = sum(
        size * sum(each in fresh for each in bucket.variables) / len(bucket.variables)
        for bucket, size in held
    )
    return new / max(1, sum(size for _, size in held))


def _choice(bucket: Bucket) -> Choice:
    route, size = bucket.route, bucket.elements * ITEM_BYTES[bucket.dtype]
    numbers: tuple[int, ...] = ()
    if isinstance(route, AllReduce):
        numbers = route.sizes
    elif isinstance(route, Owned):
        numbers = tuple(sorted(owner.share for owner in route.owners))
    elif isinstance(route, Gathered):
        numbers = (route.rows,)
    return name(route), numbers, bucket.codec, size.bit_length()
