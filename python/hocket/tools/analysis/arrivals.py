"""Distribution of the time from one arrival of a message at a node to the next."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hocket.tools.analysis.distribution import Distribution, Quantile
from hocket.tools.analysis.messages import Rows
from hocket.tools.formats import dlc

HELD_BACK = 4096
"""Number of arrivals held back until more are read, since records are not sorted by time."""


class Arrivals(Struct, frozen=True, kw_only=True):
    """Times between arrivals at a node, microseconds; None: fewer than two arrivals."""

    node: int
    messages: int
    mean_us: float | None
    cdf_us: tuple[Quantile, ...]


class ArrivalCount:
    def __init__(self) -> None:
        self._waiting: dict[int, np.ndarray[tuple[int], np.dtype[np.int64]]] = {}
        self._gaps: dict[int, Distribution] = {}
        self.late = 0
        """Number of arrivals read after later ones had been counted; they are left out."""

    def add(self, rows: Rows) -> None:
        arrived = rows[(rows["code"] & dlc.RECV != 0) & (rows["code"] != dlc.SETUP)]
        for node in np.unique(arrived["node"]).tolist():
            times = arrived["time_ns"][arrived["node"] == node] // 1000
            known = self._waiting.get(node)
            if known is not None and len(known):
                late = times < known[0]
                self.late += int(late.sum())
                times = times[~late]
            merged = np.sort(times if known is None else np.concatenate([known, times]))
            # The last counted arrival stays, as the start of the next interval.
            keep = min(len(merged), HELD_BACK)
            self._count(node, merged[: len(merged) - keep + 1])
            self._waiting[node] = merged[len(merged) - keep :]

    def _count(self, node: int, times: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        gaps = np.diff(times)
        self._gaps.setdefault(node, Distribution()).add(gaps)

    def result(self) -> tuple[Arrivals, ...]:
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
