"""Many values as few: mean, median, extremes. Kept while a trace is read, in memory that does not grow with it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from hocket.analysis.distribution import Distribution


class Summary(Struct, frozen=True, kw_only=True):
    """Of `count` durations, microseconds."""

    count: int
    mean_us: float
    median_us: float
    p99_us: float
    longest_us: float


class Durations:
    """Collects durations; negative ones, which only clocks that jump make, count as nothing."""

    def __init__(self) -> None:
        """Nothing is counted yet."""
        self._values = Distribution()

    def add_ns(self, values: npt.NDArray[np.int64]) -> None:
        """Collect nanoseconds."""
        self._values.add(np.maximum(values.astype(np.int64), 0))

    @property
    def total_us(self) -> float:
        """Of all."""
        return self._values.total / 1000

    @property
    def count(self) -> int:
        """How many there are."""
        return self._values.count

    def summary(self) -> Summary | None:
        """None when there are none."""
        if not self.count:
            return None
        median, p99, longest = (self._values.at(share) or 0 for share in (0.5, 0.99, 1.0))
        return Summary(
            count=self.count,
            mean_us=self.total_us / self.count,
            median_us=median / 1000,
            p99_us=p99 / 1000,
            longest_us=longest / 1000,
        )
