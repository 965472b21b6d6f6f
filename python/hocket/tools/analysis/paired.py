"""Comparison of two ways to train by their loss: pairs of runs with equal seeds, the mean difference and its confidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from msgspec import Struct

from hocket.errors import UsageError

CONFIDENCE = 0.95

WINDOW = 10
"""Part of a run, one of as many, over which losses are averaged."""

T_QUANTILES = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)
"""Quantiles of Student's t for 1, 2, … degrees of freedom, beyond which 2.5 % lie."""

SEEDS_MAX = len(T_QUANTILES) + 1


class Compared(Struct, frozen=True, kw_only=True):
    """Losses of each way by seed; the mean of `other - base` over seeds, and its interval of 95 % confidence. Infinite where a run
    has diverged."""

    base: tuple[float, ...]
    other: tuple[float, ...]
    difference: float
    low: float
    high: float

    @property
    def shown(self) -> bool:
        """True if the runs show a difference."""
        return not self.low <= 0 <= self.high


def compared(base: Sequence[float], other: Sequence[float]) -> Compared:
    """Compare runs with the same seeds, in the same order.

    Raises UsageError for other numbers of runs than 2 to 31 pairs.

    >>> found = compared([1.0, 1.2, 1.1], [1.1, 1.3, 1.2])
    >>> round(found.difference, 3), found.shown
    (0.1, True)
    """
    if len(base) != len(other) or not 2 <= len(base) <= SEEDS_MAX:
        raise UsageError(
            f"{len(base)} and {len(other)} runs: 2 to {SEEDS_MAX} pairs tell how sure a difference is"
        )
    steps = [after - before for before, after in zip(base, other, strict=True)]
    if not all(map(math.isfinite, steps)):
        infinite = math.inf if any(not math.isfinite(each) for each in other) else -math.inf
        return Compared(
            base=tuple(base), other=tuple(other), difference=infinite, low=infinite, high=infinite
        )
    mean = fmean(steps)
    # Runs that differ by a constant still differ by rounding.
    half = T_QUANTILES[len(steps) - 2] * stdev(steps) / math.sqrt(len(steps))
    return Compared(base=tuple(base), other=tuple(other), difference=mean, low=mean - half, high=mean + half)


def settled(losses: Sequence[float]) -> float:
    """Return the final loss of a curve: the mean of its last tenth; infinite where that has no number.

    >>> settled([float(loss) for loss in range(20, 0, -1)])
    1.5
    """
    last = losses[-max(1, len(losses) // WINDOW) :]
    return fmean(last) if last and all(map(math.isfinite, last)) else math.inf
