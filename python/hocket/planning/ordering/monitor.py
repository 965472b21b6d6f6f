"""Keeps a plan's orders suited to the current network: samples in, proposals out. Pure; the same on every rank."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hocket.artefacts.algorithms import Algorithm
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import AllReduce, Bucket, Plan
from hocket.planning.ordering.classes import Order, classes
from hocket.planning.ordering.current import WINDOW, Current, Sample
from hocket.planning.ordering.hysteresis import Caution, Hysteresis
from hocket.planning.ordering.matrix import Matrix, Numbers
from hocket.planning.ordering.shared import SharedLinks
from hocket.planning.ordering.solve import Request, cost_s, own, solve

EFFORT, RESTARTS = 0.2, 2
"""Less than a second for some hundred ranks, beside training."""


class Monitor:
    """`orders` are the current ones, of each class of buckets (`hocket.planning.ordering.classes`)."""

    def __init__(
        self,
        plan: Plan,
        latency_s: Numbers,
        s_per_byte: Numbers,
        links: SharedLinks | None = None,
        caution: Caution | None = None,
    ) -> None:
        """`latency_s`, `s_per_byte`: measured earlier, of every pair of ranks; `links`: shared ones, if known."""
        found = classes(plan)
        self.orders = tuple(found)
        self._links = links
        self._current = Current(latency_s, s_per_byte)
        self._hysteresis = Hysteresis(caution)
        self._requests = [_request(buckets) for buckets in found.values()]
        self._known: tuple[Matrix, float, tuple[Order, ...], float] | None = None
        self._looks = 0

    @property
    def matters(self) -> bool:
        """Whether orders differ in cost at all."""
        return any(len(order) > 2 for order in self.orders)

    def observe(self, samples: Sequence[Sequence[Sample | None]]) -> tuple[Order, ...] | None:
        """Add all ranks' statistics, by rank. Returns other orders when a change pays now."""
        for source, seen in enumerate(samples):
            self._current.learn(source, seen)
        self._looks += 1
        # Before, connections have no statistics, and the earlier measurement may be of another day.
        if not self._requests or self._looks < WINDOW:
            return None
        current_s, best, best_s = self._best()
        return best if self._hysteresis.propose(current_s, best_s) else None

    def begin(self, orders: tuple[Order, ...]) -> None:
        """These orders are in use from now on."""
        self.orders = orders
        self._current.begin_again()
        self._known = None
        self._looks = 0

    def _best(self) -> tuple[float, tuple[Order, ...], float]:
        """Cost of the current orders, the best ones, and their cost; searched again after a change."""
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
        best = tuple(solve(matrix, request).order for request in self._requests)
        self._known = (matrix, self._cost_s(matrix, self.orders), best, self._cost_s(matrix, best))
        return self._known[1:]

    def _cost_s(self, matrix: Matrix, orders: tuple[Order, ...]) -> float:
        return sum(
            cost_s(matrix, request, order) for request, order in zip(self._requests, orders, strict=True)
        )


def _request(buckets: Sequence[Bucket]) -> Request:
    """The size of the largest bucket of a class."""
    largest = max(buckets, key=lambda bucket: bucket.elements * ITEM_BYTES[bucket.dtype])
    route = largest.route
    assert isinstance(route, AllReduce)  # noqa: S101  # `classes` has no others
    size_bytes = float(largest.elements * ITEM_BYTES[largest.dtype])
    algorithm = Algorithm(route.algorithm, route.sizes)
    return own(algorithm, size_bytes, effort=EFFORT, restarts=RESTARTS)
