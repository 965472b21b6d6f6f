"""Distribution of values: exact while there are few different ones, then to three digits, so that memory is bounded."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

VALUES_MAX = 1 << 16
"""Limit of different values that are kept exactly."""

CDF_SHARES = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1.0)
"""Shares at which a cumulative distribution is evaluated."""


class Quantile(Struct, frozen=True, kw_only=True):
    """Quantile: `share` of the values are at most `value`."""

    share: float
    value: int


class Distribution:
    """Counts of non-negative whole numbers."""

    def __init__(self) -> None:
        self._values = np.zeros(0, np.int64)
        self._counts = np.zeros(0, np.int64)
        self.total = 0
        """Sum of all values."""

    def add(self, values: npt.NDArray[np.int64]) -> None:
        self.total += int(values.sum())
        new, counts = np.unique(values, return_counts=True)
        self._merge(np.concatenate([self._values, new]), np.concatenate([self._counts, counts]))
        if len(self._values) > VALUES_MAX:
            self._merge(_three_digits(self._values), self._counts)

    def _merge(self, values: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> None:
        self._values, which = np.unique(values, return_inverse=True)
        self._counts = np.bincount(which, counts, len(self._values)).astype(np.int64)

    @property
    def count(self) -> int:
        return int(self._counts.sum())

    def at(self, share: float) -> int | None:
        """Return the smallest value that is at least `share` of all values; None without values."""
        if not len(self._values):
            return None
        cumulative = np.cumsum(self._counts)
        return int(
            self._values[
                np.searchsorted(cumulative, share * cumulative[-1], side="left").clip(max=len(cumulative) - 1)
            ]
        )

    def cdf(self) -> tuple[Quantile, ...]:
        found = ((share, self.at(share)) for share in CDF_SHARES)
        return tuple(Quantile(share=share, value=value) for share, value in found if value is not None)


def _three_digits(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    digits = np.floor(np.log10(np.maximum(values, 1))).astype(np.int64)
    unit = 10 ** np.maximum(digits - 2, 0)
    rounded: npt.NDArray[np.int64] = values // unit * unit
    return rounded
