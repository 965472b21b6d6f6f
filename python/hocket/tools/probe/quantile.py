"""Low quantile of a stream of times, with a test whether it is known well enough. Pure.

The quantile is low, because scheduling of the two processes only adds delay to the path's own. It is known if the order statistics
that enclose it with 95 % (the binomial interval, in its normal approximation) differ by little.
"""

from __future__ import annotations

import math

QUANTILE = 0.1
PRECISION = 0.02
"""Relative uncertainty of a known quantile, each way."""

CONFIDENCE = 1.96
"""Standard deviations of a 95 % interval."""

LEAST = 64
"""Values before the first check whether they are enough; the next check comes after a tenth more, and at least as many
more."""

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
        self._values: list[float] = []
        self._asked_at = LEAST
        self._known = False

    def add(self, value: float) -> None:
        self._values.append(value)
        count = len(self._values)
        if count == self._asked_at:
            self._known = self.precision <= PRECISION
            self._asked_at = count + max(LEAST, int(count * GROWTH))

    @property
    def count(self) -> int:
        return len(self._values)

    @property
    def known(self) -> bool:
        """True if more values would hardly change the quantile."""
        return self._known

    @property
    def value(self) -> float:
        """The quantile; requires at least one value."""
        return sorted(self._values)[int(len(self._values) * QUANTILE)]

    @property
    def precision(self) -> float:
        """The relative uncertainty of the quantile, each way; 1 when there are too few values."""
        values, count = sorted(self._values), len(self._values)
        middle, spread = count * QUANTILE, CONFIDENCE * math.sqrt(count * QUANTILE * (1 - QUANTILE))
        low, high = math.floor(middle - spread), math.ceil(middle + spread)
        if low < 0 or high >= count:
            return 1.0
        value = values[int(middle)]
        return min(1.0, max(value - values[low], values[high] - value) / value) if value > 0 else 1.0
