"""Hocket's own algorithms in `python -m benches orders`."""

from __future__ import annotations

from collections.abc import Sequence

from hocket._native import Program
from hocket.artefacts.algorithms import ALL_REDUCES, ORDERED
from hocket.artefacts.chunks import chunk_bytes
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import AllReduce
from hocket.planning.compile import all_reduce_program
from hocket.planning.links import link_graph
from hocket.planning.order import rack_blocks

NATIVE: tuple[str, ...] = tuple(name for name in ORDERED if name in ALL_REDUCES)
"""All-reduces of Hocket's own programs whose order is searched for."""

BCUBE_BASE = 4


def sizes_of(algorithm: str, cluster: Cluster) -> tuple[int, ...]:
    """Numbers of an algorithm: base of BCube; for two levels a group for each rack."""
    if algorithm == "two_level":
        return tuple(sorted((len(rack) for rack in rack_blocks(cluster, len(cluster.hosts))), reverse=True))
    return (BCUBE_BASE,) if algorithm == "bcube" else ()


def pieces_of(cluster: Cluster) -> int:
    """Bytes of a piece, as chosen by the planner for the cluster's slowest link."""
    return chunk_bytes(link_graph(cluster, len(cluster.hosts)).slowest_bit_per_s)


def native_program(
    algorithm: str, sizes: tuple[int, ...], order: Sequence[int], size_bytes: int, piece_bytes: int
) -> Program:
    """All-reduce of floats to their mean as in training, in pieces, in an order of the ranks."""
    return all_reduce_program(
        world=len(order),
        elements=size_bytes // 4,
        dtype="f32",
        op="sum",
        scale=1.0 / len(order),
        route=AllReduce(algorithm=algorithm, sizes=sizes),
        chunk_bytes=piece_bytes,
        order=order,
    )
