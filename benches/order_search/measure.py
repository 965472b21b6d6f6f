"""The rows of `python -m benches order-search`, each a promise about orders with what was measured."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np

from benches.order_search.data_centre import data_centre
from benches.order_search.plain import annealing, cost_of, shortest_ring
from hocket.errors import UsageError
from hocket.planning.ordering.matrix import Matrix
from hocket.planning.ordering.solve import ALGORITHMS, Algorithm, Ordering, Request, cost_s, solve

SMALL_HOSTS = (4, 6, 8, 9, 10, 12)
RING_HOSTS = 512
RING_TOPOLOGIES = 5
OTHER_HOSTS = 64
PLAIN_S = 60.0
RANDOM_ORDERS = 100
LARGE_HOSTS = (512, 1024, 2048, 4096)
LARGE_EFFORT = 0.3
"""Less than a person's: sizes by algorithms are many searches."""

NANOSECONDS = 1e9
"""LKH takes whole numbers, not too large ones."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """`value` against `target`: at most, or at least where `more` is better; None: no target."""

    name: str
    what: str
    value: float
    target: float | None
    seconds: float
    more: bool = False

    @property
    def met(self) -> bool:
        if self.target is None:
            return True
        return self.value >= self.target if self.more else self.value <= self.target


def measure(rows: Sequence[str] | None) -> Iterator[Row]:
    """All rows, or those asked for."""
    for name in rows or ROWS:
        yield from ROWS[name]()


def _timed(matrix: Matrix, request: Request) -> tuple[Ordering, float]:
    start = time.perf_counter()
    found = solve(matrix, request)
    return found, time.perf_counter() - start


def _small_rings() -> Iterator[Row]:
    for hosts in SMALL_HOSTS:
        matrix = data_centre(hosts, hosts)
        found, seconds = _timed(matrix, Request())
        best = shortest_ring(matrix)
        what = f"ring of {hosts}: cost over the best of all orders"
        yield Row(name="small", what=what, value=found.cost_s / best, target=1 + 1e-9, seconds=seconds)


def _rings() -> Iterator[Row]:
    try:
        elkai = importlib.import_module("elkai")
    except ImportError:
        raise UsageError("LKH is not here\nhint: pip install elkai") from None
    for seed in range(RING_TOPOLOGIES):
        matrix = data_centre(RING_HOSTS, seed)
        found, seconds = _timed(matrix, Request())
        whole = np.rint(matrix.latency_s * NANOSECONDS).astype(int).tolist()
        tour = elkai.DistanceMatrix(whole).solve_tsp(runs=1)
        other = cost_s(matrix, Request(), tour[:-1])
        what = f"ring of {RING_HOSTS}, topology {seed}: cost over the best known of ours and LKH's"
        value = found.cost_s / min(found.cost_s, other)
        yield Row(
            name="ring",
            what=f"{what} (ours over LKH's: {found.cost_s / other:.4f})",
            value=value,
            target=1.01,
            seconds=seconds,
        )
        yield Row(
            name="ring",
            what=f"ring of {RING_HOSTS}, topology {seed}: seconds",
            value=seconds,
            target=10,
            seconds=seconds,
        )


def _other(algorithm: Algorithm) -> Callable[[], Iterator[Row]]:
    def rows() -> Iterator[Row]:
        matrix = data_centre(OTHER_HOSTS, 1)
        groups = (8,) * 8 if algorithm == "two_level" else ()
        found, seconds = _timed(matrix, Request(algorithm=algorithm, groups=groups))
        cost = cost_of(matrix, algorithm, groups=groups)
        plain = annealing(cost, OTHER_HOSTS, seconds=PLAIN_S, seed=1)
        title = f"{algorithm} of {OTHER_HOSTS}"
        what = f"{title}: cost over that of annealing in plain Python for {PLAIN_S:.0f} s"
        yield Row(name=algorithm, what=what, value=found.cost_s / plain, target=1.0, seconds=seconds)
        yield Row(name=algorithm, what=f"{title}: seconds", value=seconds, target=2, seconds=seconds)

    return rows


def _large(hosts: int) -> Callable[[], Iterator[Row]]:
    def rows() -> Iterator[Row]:
        matrix = data_centre(hosts, 7)
        random = np.random.default_rng(7)
        orders = [random.permutation(hosts).tolist() for _ in range(RANDOM_ORDERS)]
        for algorithm in (each for each in ALGORITHMS if each != "auto"):
            groups = (16,) * (hosts // 16) if algorithm == "two_level" else ()
            request = Request(algorithm=algorithm, groups=groups, effort=LARGE_EFFORT)
            found, seconds = _timed(matrix, request)
            mean_s = float(np.mean([cost_s(matrix, request, order) for order in orders]))
            what = f"{algorithm} of {hosts}: mean cost of {RANDOM_ORDERS} random orders over the chosen one's"
            yield Row(
                name=f"gain-{hosts}",
                what=what,
                value=mean_s / found.cost_s,
                target=1.0,
                seconds=seconds,
                more=True,
            )

    return rows


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    "small": _small_rings,
    "ring": _rings,
    "halving_doubling": _other("halving_doubling"),
    "double_binary_tree": _other("double_binary_tree"),
    "bcube": _other("bcube"),
    "two_level": _other("two_level"),
    **{f"gain-{hosts}": _large(hosts) for hosts in LARGE_HOSTS},
}
"""Measurements by their name on the command line."""
