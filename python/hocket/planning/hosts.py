"""Hosts of a job's ranks, as builders see them."""

from __future__ import annotations

import math

from msgspec import Struct

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.network import Network
from hocket.planning.order import placement


class Host(Struct, frozen=True):
    """Host with ranks of the job that train. `bit_per_s`: rate of its fastest path to another host; infinite without another."""

    name: str
    rack: str
    ranks: tuple[int, ...]
    bit_per_s: float


def hosts_of(cluster: Cluster, graph: Network, workers: int) -> tuple[Host, ...]:
    """Return the hosts of the first `workers` ranks, in the order of their first ranks."""
    places = placement(cluster, graph.world)
    members: dict[int, list[int]] = {}
    first: dict[int, int] = {}
    for rank, at in enumerate(places):
        first.setdefault(at, rank)
        if rank < workers:
            members.setdefault(at, []).append(rank)
    return tuple(
        Host(
            cluster.hosts[at].name,
            cluster.hosts[at].rack,
            tuple(own),
            max(
                (graph.bit_per_s(first[at], other) for to, other in first.items() if to != at),
                default=math.inf,
            ),
        )
        for at, own in members.items()
    )
