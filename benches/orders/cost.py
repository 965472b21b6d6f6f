"""Cost of a call in an order of ranks, for all orders of a few hosts at once: the oracle of the benchmarks.

An algorithm is a list of rounds; a round is messages `(from, to, share of the bytes)` between ranks, each sent when its sender has
finished the round before. The time of a call is the growth of the ranks' clocks over successive calls, since a call may begin on
some ranks before it has ended on others. If a library's receiver announces its readiness for a round only after the round before
(Gloo: `announced`), the message also waits for the announcement, so a ring is as slow as its slowest pair, there and back, in every
round.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from hocket.artefacts.cluster import Cluster, both
from hocket.errors import UsageError

Message = tuple[int, int, float]
Rounds = list[list[Message]]
Orders = npt.NDArray[np.int64]
Seconds = npt.NDArray[np.float64]

CALLS = 8
"""Number of successive calls; the second half counts."""
HOSTS_MAX = 8
"""Largest number of hosts whose orders are all tried: 40 320."""


def rounds(algorithm: str, world: int) -> Rounds:
    """Messages of an all-reduce; a power of two of ranks.

    >>> rounds("recursive_doubling", 2)
    [[(0, 1, 1.0), (1, 0, 1.0)]]
    """
    ranks = range(world)
    match algorithm:
        case "ring" | "gloo_ring":
            return [[(rank, (rank + 1) % world, 1 / world) for rank in ranks]] * (2 * (world - 1))
        case "recursive_doubling":
            return [[(rank, rank ^ bit, 1.0) for rank in ranks] for bit in _bits(world)]
        case "halving_doubling":
            halves = [[(rank, rank ^ bit, bit / world) for rank in ranks] for bit in reversed(_bits(world))]
            return halves + halves[::-1]
    raise UsageError(f"no cost of `{algorithm}` is known")


def costs_s(algorithm: str, cluster: Cluster, orders: Orders, size_bytes: int) -> Seconds:
    """Seconds per call, by order. `orders[i][rank]` is the index of a host of `cluster`, whose `latency_s` is given."""
    world = orders.shape[1]
    latency_s = np.asarray(cluster.latency_s)
    second_per_byte = 8 / min(min(both(host.bandwidth_bit_per_s)) for host in cluster.hosts)
    known = rounds(algorithm, world)
    clocks: Seconds = np.zeros((len(orders), world))
    half = clocks
    for call in range(CALLS):
        if call == CALLS // 2:
            half = clocks
        clocks = _run(
            known, clocks, orders, latency_s, size_bytes * second_per_byte, announced=algorithm == "gloo_ring"
        )
    growth: Seconds = (clocks.max(axis=1) - half.max(axis=1)) / (CALLS - CALLS // 2)
    return growth


def all_orders(hosts: int) -> Orders:
    """Every order of a few hosts."""
    if hosts > HOSTS_MAX:
        raise UsageError(f"all orders of {hosts} hosts are too many: at most {HOSTS_MAX}")
    return np.array(list(itertools.permutations(range(hosts))))


def extremes(algorithm: str, cluster: Cluster, size_bytes: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Cheapest and dearest of all orders."""
    orders = all_orders(len(cluster.hosts))
    found = costs_s(algorithm, cluster, orders, size_bytes)
    best, worst = orders[int(found.argmin())], orders[int(found.argmax())]
    return tuple(map(int, best)), tuple(map(int, worst))


def _run(
    known: Rounds, start: Seconds, orders: Orders, latency_s: Seconds, whole_s: float, *, announced: bool
) -> Seconds:
    clocks = start
    for messages in known:
        after = clocks.copy()
        for source, target, share in messages:
            hosts = orders[:, source], orders[:, target]
            leaves = clocks[:, source]
            if announced:
                leaves = np.maximum(leaves, clocks[:, target] + latency_s[hosts[::-1]])
            after[:, target] = np.maximum(after[:, target], leaves + latency_s[hosts] + share * whole_s)
        clocks = after
    return clocks


def _bits(world: int) -> list[int]:
    if world < 2 or world & (world - 1):
        raise UsageError(f"{world} ranks: this cost is for a power of two of them")
    return [1 << at for at in range(world.bit_length() - 1)]
