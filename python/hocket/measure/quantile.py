"""A low quantile of times that come one by one, and when it is known well enough. Pure.

Low, since what delays a round trip beyond the path is the scheduling of the two processes. Known: between the order statistics
that hold the quantile with 95 % (the binomial interval, in its normal approximation) values differ by little.
"""

from __future__ import annotations

import math

QUANTILE = 0.1
PRECISION = 0.02
"""Part of the quantile by which it may be wrong, each way."""

CONFIDENCE = 1.96
"""Standard deviations that hold 95 %."""

LEAST = 64
"""Values before it is asked whether they are enough; asked again after a tenth more, and as many more at least."""

GROWTH = 0.1


class Quantile:
    """Values and their quantile.

    >>> steady = Quantile()
    >>> for _ in range(64):
    ...     steady.add(2.0)
    >>> steady.value, steady.known
    (2.0, True)
    """

    def __init__(self) -> None:
        """Without values."""
        self._values: list[float] = []
        self._asked_at = LEAST
        self._known = False

    def add(self, value: float) -> None:
        """One more."""
        self._values.append(value)
        count = len(self._values)
        if count == self._asked_at:
            self._known = self.precision <= PRECISION
            self._asked_at = count + max(LEAST, int(count * GROWTH))

    @property
    def count(self) -> int:
        """Values so far."""
        return len(self._values)

    @property
    def known(self) -> bool:
        """Whether more values would hardly change it."""
        return self._known

    @property
    def value(self) -> float:
        """The quantile; there must be a value."""
        return sorted(self._values)[int(len(self._values) * QUANTILE)]

    @property
    def precision(self) -> float:
        """The part of the quantile by which it may be wrong, each way; 1: by anything, since there are too few values."""
        values, count = sorted(self._values), len(self._values)
        middle, spread = count * QUANTILE, CONFIDENCE * math.sqrt(count * QUANTILE * (1 - QUANTILE))
        low, high = math.floor(middle - spread), math.ceil(middle + spread)
        if low < 0 or high >= count:
            return 1.0
        value = values[int(middle)]
        return min(1.0, max(value - values[low], values[high] - value) / value) if value > 0 else 1.0
