"""An order from the search of `hocket.planning.ordering`, if the network between hosts was measured.

Racks and hosts explain most of a network, and suffice for the contiguous order. Only a matrix shows distances between racks and
pairs that are slow for no visible reason. Trunks and cards are shared as in the link graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from hocket.artefacts.algorithms import BY_NAME, Algorithm, fitting
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.network import Network
from hocket.planning.order import contiguous_order, placement
from hocket.planning.ordering.matrix import SHORTEST_S, build
from hocket.planning.ordering.solve import cost_s, own, solve

SIZE_BYTES = 4 << 20
"""Buffer size by which orders are judged: a bucket of middle size."""

EFFORT, RESTARTS = 0.2, 2
"""Effort and restarts that take less than a second for some hundred ranks; all ranks search independently, with the same result."""

WORTH = 0.99
"""Fraction of every simpler order's cost below which an order is chosen; otherwise measurement noise would decide."""


def solved_orders(
    cluster: Cluster, graph: Network, admitted: frozenset[str], simpler: Sequence[tuple[int, ...]]
) -> Iterator[tuple[Algorithm, tuple[int, ...]]]:
    """Admitted algorithms, each with an order that is cheaper than the simpler ones.

    The algorithms fit the hosts rack by rack.
    """
    places = placement(cluster, len(graph.hosts))
    hosts = [cluster.hosts[places[rank]] for rank in contiguous_order(cluster, len(graph.hosts))]
    fits = fitting("all_reduce", [host.name for host in hosts], [host.rack for host in hosts])
    for name, algorithm in fits.items():
        order = solved_order(graph, algorithm, simpler) if name in admitted else None
        if order is not None:
            yield algorithm, order


def solved_order(
    graph: Network, algorithm: Algorithm, simpler: Iterable[tuple[int, ...]]
) -> tuple[int, ...] | None:
    """The cheapest order found for an algorithm; None when a simpler one is as good."""
    world = len(graph.hosts)
    if not BY_NAME[algorithm.name].ordered or world < 3:
        return None
    latency_s = np.zeros((world, world))
    bit_per_s = np.zeros((world, world))
    for pair in graph.pairs():
        latency_s[pair] = graph.path(*pair)[1] or SHORTEST_S
        bit_per_s[pair] = graph.bit_per_s(*pair)
    matrix = replace(build([str(rank) for rank in range(world)], latency_s, bit_per_s), network=graph)
    request = own(algorithm, SIZE_BYTES, effort=EFFORT, restarts=RESTARTS)
    found = solve(matrix, request)
    if all(found.cost_s < WORTH * cost_s(matrix, request, order) for order in simpler):
        return found.order
    return None
