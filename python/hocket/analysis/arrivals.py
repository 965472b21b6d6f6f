"""How far apart do messages arrive at a node: the distribution of the time between one and the next."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hocket.analysis.distribution import Distribution, Quantile
from hocket.analysis.messages import Rows
from hocket.formats import dlc

HELD_BACK = 4096
"""Arrivals that are kept back until more are read, since records do not stand in order of time."""


class Arrivals(Struct, frozen=True, kw_only=True):
    """Times between messages that arrive at a node, microseconds; None: fewer than two arrived."""

    node: int
    messages: int
    mean_us: float | None
    cdf_us: tuple[Quantile, ...]


class ArrivalCount:
    """Counts as rows come."""

    def __init__(self) -> None:
        """Nothing is counted yet."""
        self._waiting: dict[int, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
        self._gaps: dict[int, Distribution] = {}
        self.late = 0
        """Arrivals that were read when later ones had been counted; they are left out."""

    def add(self, rows: Rows) -> None:
        """Count messages."""
        arrived = rows[(rows["code"] & dlc.RECV != 0) & (rows["code"] != dlc.SETUP)]
        for node in np.unique(arrived["node"]).tolist():
            times = arrived["time_ns"][arrived["node"] == node] // 1000
            known = self._waiting.get(node)
            if known is not None and len(known):
                late = times < known[0]
                self.late += int(late.sum())
                times = times[~late]
            merged = np.sort(times if known is None else np.concatenate([known, times]))
            # The last arrival that is counted stays, to count the next from.
            keep = min(len(merged), HELD_BACK)
            self._count(node, merged[: len(merged) - keep + 1])
            self._waiting[node] = merged[len(merged) - keep :]

    def _count(self, node: int, times: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        gaps = np.diff(times)
        self._gaps.setdefault(node, Distribution()).add(gaps)

    def result(self) -> tuple[Arrivals, ...]:
        """The counts, a node after the other."""
        for node, times in self._waiting.items():
            self._count(node, times)
            self._waiting[node] = times[-1:]
        return tuple(
            Arrivals(
                node=node,
                messages=gaps.count + 1,
                mean_us=gaps.total / gaps.count if gaps.count else None,
                cdf_us=gaps.cdf(),
            )
            for node, gaps in sorted(self._gaps.items())
        )
