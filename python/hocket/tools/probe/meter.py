"""Rate of a transfer in bit/s, from its bytes as they arrive. Pure: time is an argument.

The start of a TCP transfer is misleading: slow start, the burst of a token bucket, and, when slow start overran a
queue, stalls after which all reordered data is delivered at once.
"""

from __future__ import annotations

import threading
from statistics import median

DISCARDED_PART = 0.4
"""Fraction of a transfer of full duration that is ignored."""

AGREEMENT = 0.03
"""Relative difference below which two windows agree on the rate; on an undisturbed link they differ by a tenth of that."""


class Meter:
    """The rate of one transfer, found when `bit_per_s` is not None; several threads may add to it.

    With a `window_s`: as soon as two consecutive windows agree, the first window excluded, or after `duration_s` since
    the first byte the median of them. Without: the mean of the later part of `duration_s`.

    >>> meter = Meter(10.0, window_s=1.0)
    >>> for second in range(4):
    ...     meter.add(float(second), 125)
    >>> meter.bit_per_s
    1000.0
    """

    def __init__(self, duration_s: float, window_s: float | None) -> None:
        """Begin without any bytes."""
        self.bit_per_s: float | None = None
        self._duration_s = duration_s
        self._window_s = window_s
        self._received = 0
        self._start_s: float | None = None
        self._counted_from: tuple[float, int] | None = None
        self._window_from = (0.0, 0)
        self._windows: list[float] = []
        self._lock = threading.Lock()

    def add(self, now_s: float, count: int) -> None:
        """Count `count` arrived bytes."""
        with self._lock:
            self._add(now_s, count)

    def _add(self, now_s: float, count: int) -> None:
        self._received += count
        if self._start_s is None:
            self._start_s = now_s
            self._window_from = (now_s, self._received)
            return
        elapsed_s = now_s - self._start_s
        if self._counted_from is None and elapsed_s >= DISCARDED_PART * self._duration_s:
            self._counted_from = (now_s, self._received)
        elif self._counted_from is not None and elapsed_s >= self._duration_s:
            later = self._windows[1:]
            self.bit_per_s = median(later) if later else self._since(self._counted_from, now_s)
        if self._window_s is not None and now_s - self._window_from[0] >= self._window_s:
            self._windows.append(self._since(self._window_from, now_s))
            self._window_from = (now_s, self._received)
            self._compare()

    def _compare(self) -> None:
        if len(self._windows) > 2:
            before, last = self._windows[-2:]
            if abs(last - before) < AGREEMENT * max(last, before):
                self.bit_per_s = (before + last) / 2

    def _since(self, point: tuple[float, int], now_s: float) -> float:
        return (self._received - point[1]) * 8 / (now_s - point[0])
