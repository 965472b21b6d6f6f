"""Memory that merged and late gradients take on a rank, beyond that of synchronous training."""

from __future__ import annotations

from collections.abc import Sequence

from hocket import _native
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.learning import Learning
from hocket.artefacts.plan import Bucket, Schedule


def extra_bytes(buckets: Sequence[Bucket], schedules: Sequence[Schedule], learning: Learning | None) -> int:
    """Return the bytes that a session takes which may use any of these schedules.

    Each slot after a bucket's first is its gradients once more. Where ranks train ahead of an anchor, sums lie apart in each slot,
    and gradients and parameters are there once more; so is the optimizer's state, or the outer momentum. Where ranks of a site step
    together, gradients travel from memory of their own.
    """
    sizes = [each.elements * ITEM_BYTES[each.dtype] for each in buckets]
    slots = slots_of(schedules, len(sizes))
    extra = sum(size * (count - 1) for size, count in zip(sizes, slots, strict=True))
    anchored = [each for each in schedules if each.steps != "one"]
    if anchored:
        sums = sum(size * count for size, count in zip(sizes, slots, strict=True))
        states = [
            _moments(learning) if each.outer is None else int(each.outer.momentum > 0) for each in anchored
        ]
        inside = any(each.outer is not None and each.outer.inside for each in anchored)
        extra += sums + (2 + inside + max(states)) * sum(sizes)
    return extra


def slots_of(schedules: Sequence[Schedule], buckets: int) -> list[int]:
    """Return the slots of each bucket, whichever of these schedules is in force."""
    needed = (_native.schedule_slots(each, buckets) for each in schedules)
    return [max(each) for each in zip(*needed, strict=True)]


def _moments(learning: Learning | None) -> int:
    """Return how often an optimizer keeps as much as the parameters; one of an unknown kind may keep none."""
    if learning is None:
        return 0
    return 2 if learning.adaptive else int(learning.momentum > 0)
