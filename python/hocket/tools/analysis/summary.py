"""Summary of many values: mean, extremes, percentiles, collected while a trace is read, in bounded memory.

A trace may have negative durations, if its clocks jumped or events came in another order than defined. They are counted, but left
out of all figures.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from hocket.tools.analysis.distribution import Distribution


class AtMost(Struct, frozen=True, kw_only=True):
    """Point of a cumulative distribution: `share` of the durations are at most `us`."""

    share: float
    us: float


class Summary(Struct, frozen=True, kw_only=True):
    """Statistics of `count` durations, microseconds; `negative` others were below zero and are left out."""

    count: int
    negative: int
    least_us: float
    mean_us: float
    median_us: float
    p99_us: float
    longest_us: float
    cdf_us: tuple[AtMost, ...]


class Durations:
    def __init__(self) -> None:
        self._values = Distribution()
        self.negative = 0
        """Number of negative durations."""

    def add_ns(self, values: npt.NDArray[np.int64]) -> None:
        """Collect nanoseconds."""
        durations = values.astype(np.int64)
        below = durations < 0
        self.negative += int(below.sum())
        self._values.add(durations[~below])

    @property
    def total_us(self) -> float:
        """Sum of all durations that are not negative."""
        return self._values.total / 1000

    @property
    def count(self) -> int:
        """Number of durations that are not negative."""
        return self._values.count

    def summary(self) -> Summary | None:
        """Return the statistics; None without durations."""
        if not self.count:
            return None
        least, median, p99, longest = (self._values.at(share) or 0 for share in (0.0, 0.5, 0.99, 1.0))
        return Summary(
            count=self.count,
            negative=self.negative,
            least_us=least / 1000,
            mean_us=self.total_us / self.count,
            median_us=median / 1000,
            p99_us=p99 / 1000,
            longest_us=longest / 1000,
            cdf_us=tuple(AtMost(share=each.share, us=each.value / 1000) for each in self._values.cdf()),
        )
