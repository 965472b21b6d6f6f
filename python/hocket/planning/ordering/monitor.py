"""Keeps a plan's order fit for the network as it is now: samples in, proposals out. Pure; the same on every rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hocket.artefacts.algorithms import BY_NAME
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import Plan
from hocket.planning.ordering.current import WINDOW, Current, Sample
from hocket.planning.ordering.hysteresis import Caution, Hysteresis
from hocket.planning.ordering.matrix import Matrix, Numbers
from hocket.planning.ordering.shared import SharedLinks
from hocket.planning.ordering.solve import Request, cost_s, own, solve

EFFORT, RESTARTS = 0.2, 2
"""Within a second for some hundred ranks, beside training."""


class Monitor:
    """`order` is the current one, over ranks."""

    def __init__(
        self,
        plan: Plan,
        latency_s: Numbers,
        s_per_byte: Numbers,
        links: SharedLinks | None = None,
        caution: Caution | None = None,
    ) -> None:
        """`latency_s`, `s_per_byte`: of every pair of ranks, as measured before; `links`: those that pairs share, where known."""
        self.order = plan.order
        self._links = links
        self._current = Current(latency_s, s_per_byte)
        self._hysteresis = Hysteresis(caution)
        self._request = _request(plan)
        self._known: tuple[Matrix, float, tuple[int, ...], float] | None = None
        self._looks = 0

    @property
    def matters(self) -> bool:
        """Whether any order is better than another."""
        return self._request is not None and len(self.order) > 2

    def observe(self, samples: Sequence[Sequence[Sample | None]]) -> tuple[int, ...] | None:
        """What all ranks saw, by rank. Another order, when it is worth to change to it now."""
        for source, seen in enumerate(samples):
            self._current.learn(source, seen)
        self._looks += 1
        # Before, connections have said nothing, and what was measured once may be of another day.
        if self._request is None or self._looks < WINDOW:
            return None
        current_s, best, best_s = self._best(self._request)
        return best if self._hysteresis.propose(current_s, best_s) else None

    def begin(self, order: tuple[int, ...]) -> None:
        """This order is used from now on."""
        self.order = order
        self._current.begin_again()
        self._known = None
        self._looks = 0

    def _best(self, request: Request) -> tuple[float, tuple[int, ...], float]:
        """Cost of the current order, the best, and its cost; searched for anew when something has changed."""
        latency_s, s_per_byte = self._current.matrices()
        latency_s = np.maximum(latency_s, latency_s.T)
        s_per_byte = np.maximum(s_per_byte, s_per_byte.T)
        known = self._known
        if (
            known is not None
            and known[0].s_per_byte is not None
            and np.array_equal(known[0].latency_s, latency_s)
            and np.array_equal(known[0].s_per_byte, s_per_byte)
        ):
            return known[1:]
        matrix = Matrix(
            hosts=tuple(str(rank) for rank in range(len(latency_s))),
            latency_s=latency_s,
            s_per_byte=s_per_byte,
            links=self._links,
        )
        current_s = cost_s(matrix, request, self.order)
        best = solve(matrix, request).order
        self._known = (matrix, current_s, best, cost_s(matrix, request, best))
        return self._known[1:]


def _request(plan: Plan) -> Request | None:
    """By the largest bucket; None when the order does not matter to it."""
    if not plan.buckets:
        return None
    largest = max(plan.buckets, key=lambda bucket: bucket.elements * ITEM_BYTES[bucket.dtype])
    how = largest.synchroniser
    if not BY_NAME[how.algorithm].ordered:
        return None
    size_bytes = float(largest.elements * ITEM_BYTES[largest.dtype])
    return own(how.algorithm, how.sizes, size_bytes, effort=EFFORT, restarts=RESTARTS)
