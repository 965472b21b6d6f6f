"""The current network: matrices measured once and updated from statistics of connections in use. Pure.

A connection in use fills queues, its own among them, so its statistics are no measurement of the path. Two comparisons
are meaningful all the same. In an order's first window all used pairs have the same load: a pair whose rate, relative
to the known one, is lower than the median pair's is slower than known. Later, a pair whose rate or round trip differs
from its own first window has changed. The matrices change by these ratios. A dead zone ignores the effects of load
itself.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median, median_low

import numpy as np

from hocket.planning.ordering.matrix import Numbers

WINDOW = 6
"""Samples combined into one number: the shortest round trip, the median rate."""

TELLING_BYTES = 64 << 10
"""Bytes between two samples; with fewer, a connection's time is mostly round trips."""

SAME = 2.0
"""A ratio within this, either way, is no change: noise of a third, up and down, has no effect."""

SAME_S = 200e-6
"""Nor is a smaller difference of round trips: a process may wait for its core."""

PAIRS_MIN = 3
"""With fewer pairs, the outlier cannot be identified."""

RATIO_MAX = 1000.0
"""A larger change means a fault, and its size means nothing."""


@dataclass(frozen=True)
class Sample:
    """The sender's statistics of a pair since the previous sample: round trip, and bytes acknowledged in busy time."""

    round_trip_s: float
    sent_bytes: float
    busy_s: float


@dataclass
class _Pair:
    trips: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    rates: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    first_trip_s: float | None = None
    first_rate: float | None = None

    @property
    def slower(self) -> float:
        """Relative to the first window."""
        if self.first_rate is None or len(self.rates) < WINDOW:
            return 1.0
        return _beyond(self.first_rate / median(self.rates))


class Current:
    """Latency and seconds per byte of every ordered pair, as far as measured."""

    def __init__(self, latency_s: Numbers, s_per_byte: Numbers) -> None:
        """Earlier measurements; diagonals are 0."""
        self._latency_s, self._s_per_byte = latency_s.copy(), s_per_byte.copy()
        self._pairs: dict[tuple[int, int], _Pair] = {}

    def learn(self, source: int, samples: Sequence[Sample | None]) -> None:
        """One rank's statistics of its connections, by rank; None if it has none."""
        for destination, sample in enumerate(samples):
            if sample is not None and destination != source:
                self._learn(self._pairs.setdefault((source, destination), _Pair()), sample)

    def begin_again(self) -> None:
        """Another order is in use, which loads other pairs: the current state becomes the reference."""
        self._latency_s, self._s_per_byte = self.matrices()
        self._pairs.clear()

    def matrices(self) -> tuple[Numbers, Numbers]:
        """Current latency and seconds per byte; the original values where nothing has changed."""
        latency_s, s_per_byte = self._latency_s.copy(), self._s_per_byte.copy()
        for pair, seen in self._pairs.items():
            if seen.first_trip_s is not None and len(seen.trips) == WINDOW:
                now_s = min(seen.trips)
                if abs(now_s - seen.first_trip_s) > SAME_S and _changed(now_s / seen.first_trip_s):
                    latency_s[pair] = max(0.0, latency_s[pair] + (now_s - seen.first_trip_s) / 2)
        others = self._first_slowness()
        for pair, seen in self._pairs.items():
            slower = seen.slower * _beyond(others.get(pair, 1.0))
            s_per_byte[pair] *= min(max(slower, 1 / RATIO_MAX), RATIO_MAX)
        return latency_s, s_per_byte

    def _first_slowness(self) -> dict[tuple[int, int], float]:
        """By pair: how much slower than known it was in its first window, relative to the median of all."""
        slowness = {
            pair: 1 / (seen.first_rate * self._s_per_byte[pair])
            for pair, seen in self._pairs.items()
            if seen.first_rate is not None and self._s_per_byte[pair] > 0
        }
        if len(slowness) < PAIRS_MIN:
            return {}
        middle = median_low(slowness.values())
        return {pair: each / middle for pair, each in slowness.items()}

    @staticmethod
    def _learn(seen: _Pair, sample: Sample) -> None:
        if sample.round_trip_s > 0:
            seen.trips.append(sample.round_trip_s)
            if seen.first_trip_s is None and len(seen.trips) == WINDOW:
                seen.first_trip_s = min(seen.trips)
        if sample.sent_bytes >= TELLING_BYTES and sample.busy_s > 0:
            seen.rates.append(sample.sent_bytes / sample.busy_s)
            if seen.first_rate is None and len(seen.rates) == WINDOW:
                seen.first_rate = median(seen.rates)


def _changed(ratio: float) -> bool:
    return not 1 / SAME <= ratio <= SAME


def _beyond(ratio: float) -> float:
    """1 for insignificant changes."""
    return ratio if _changed(ratio) else 1.0


def uniform(ranks: int) -> tuple[Numbers, Numbers]:
    """Matrices without measurements: all pairs alike, 100 µs and 1 Gbit/s."""
    apart = 1.0 - np.eye(ranks)
    return apart * 100e-6, apart * 8e-9
