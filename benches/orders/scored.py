"""Rank correlation of the cost of `hocket order` with measured times of Hocket's own programs, from best to worst order.

Drawn orders are spread evenly over the range of costs, since nearly all random orders cost about the same. The chosen order, the
given one and the fastest drawn one are then measured in turns: the least of thirty times is also the luckiest.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from msgspec import Struct

from benches.orders.native import sizes_of
from benches.spearman import spearman
from hocket.artefacts.algorithms import Algorithm
from hocket.artefacts.cluster import Cluster
from hocket.planning.ordering.cluster import of_cluster
from hocket.planning.ordering.solve import costs_s, own, solve

DRAWN, POOL = 30, 3000
"""Number of measured orders, and of the random ones from which they are drawn."""
TURNS, COMPARED_TURNS = 3, 7
"""Turns of the drawn orders, and of the three that are compared."""
SEED = 7
TARGET = 0.9

Measure = Callable[[Sequence[Sequence[int]], int], list[float]]
"""Function for the seconds of each order, the median over turns."""


class Scored(Struct, frozen=True, kw_only=True):
    """`value` is Spearman's correlation of cost and time over the drawn orders; times are medians over turns."""

    name: str
    what: str
    orders: list[tuple[int, ...]]
    costs_s: list[float]
    times_s: list[float]
    chosen: tuple[int, ...]
    chosen_cost_s: float
    best_s: float
    chosen_s: float
    given_s: float
    value: float
    target: float = TARGET

    @property
    def chosen_to_best(self) -> float:
        """Time of the chosen order over that of the best drawn one."""
        return self.chosen_s / self.best_s

    @property
    def gain(self) -> float:
        """Time of the given order over that of the chosen one."""
        return self.given_s / self.chosen_s


def score(name: str, cluster: Cluster, algorithm: str, size_bytes: int, measure: Measure) -> Scored:
    matrix = of_cluster(cluster)
    request = own(Algorithm(algorithm, sizes_of(algorithm, cluster)), size_bytes)
    found = solve(matrix, request)
    given = tuple(range(len(cluster.hosts)))
    draws = random.Random(SEED)  # noqa: S311  # an example, not a secret
    pool = {found.order, given} | {tuple(draws.sample(given, len(given))) for _ in range(POOL)}
    listed = sorted(pool)
    drawn = spread(sorted(zip(costs_s(matrix, request, listed), listed, strict=True)), DRAWN)
    orders = [order for _, order in drawn]
    times_s = measure(orders, TURNS)
    best = orders[times_s.index(min(times_s))]
    best_s, chosen_s, given_s = measure([best, found.order, given], COMPARED_TURNS)
    megabytes = size_bytes / 1e6
    return Scored(
        name=name,
        what=f"{algorithm}, {megabytes:g} MB: Spearman of cost and time, {DRAWN} orders from best to worst",
        orders=orders,
        costs_s=[cost for cost, _ in drawn],
        times_s=times_s,
        chosen=found.order,
        chosen_cost_s=found.cost_s,
        best_s=best_s,
        chosen_s=chosen_s,
        given_s=given_s,
        value=spearman([cost for cost, _ in drawn], times_s),
    )


def spread(
    priced: Sequence[tuple[float, tuple[int, ...]]], count: int
) -> list[tuple[float, tuple[int, ...]]]:
    """Pick `count` entries of a sorted list, whose costs are spread as evenly as possible.

    >>> spread([(1.0, (0,)), (1.1, (1,)), (1.2, (2,)), (5.0, (3,)), (9.0, (4,))], 3)
    [(1.0, (0,)), (5.0, (3,)), (9.0, (4,))]
    """
    left = list(priced)
    low, high = left[0][0], left[-1][0]
    chosen = []
    for at in range(min(count, len(left))):
        wanted = low + (high - low) * at / max(1, count - 1)
        nearest = min(range(len(left)), key=lambda place: abs(left[place][0] - wanted))
        chosen.append(left.pop(nearest))
    return chosen
