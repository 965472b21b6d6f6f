"""Hocket's own algorithms as `python -m benches orders` runs them, and the same as `hocket order` is asked for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from hocket._native import Program
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import chunk_bytes
from hocket.planning.links import link_graph
from hocket.planning.order import rack_blocks
from hocket.planning.ordering.solve import Request

Algorithm = Literal["ring", "halving_doubling", "double_binary_tree", "bcube", "two_level"]
NATIVE: tuple[Algorithm, ...] = get_args(Algorithm)
"""Algorithms of Hocket's own programs."""

BCUBE_BASE = 4


def sizes_of(algorithm: str, cluster: Cluster) -> tuple[int, ...]:
    """Base of BCube; of two levels a group as large as each rack."""
    if algorithm == "two_level":
        return tuple(sorted((len(rack) for rack in rack_blocks(cluster, len(cluster.hosts))), reverse=True))
    return (BCUBE_BASE,) if algorithm == "bcube" else ()


def pieces_of(cluster: Cluster) -> int:
    """Bytes of a piece, as the planner cuts messages on the cluster's slowest link."""
    return chunk_bytes(link_graph(cluster, len(cluster.hosts)).slowest_bit_per_s)


def native_program(
    algorithm: str, sizes: tuple[int, ...], order: Sequence[int], size_bytes: int, piece_bytes: int
) -> Program:
    """An all-reduce of floats to their mean as training runs it, in pieces, in an order of the ranks."""
    logical = Program.all_reduce(
        name=algorithm,
        world=len(order),
        elements=size_bytes // 4,
        dtype="f32",
        op="sum",
        scale=1.0 / len(order),
        algorithm=algorithm,
        sizes=sizes,
        record_non_finite=False,
    )
    program = logical.lower().relabel(order).chunk(piece_bytes)
    program.verify()
    return program


def request(algorithm: Algorithm, sizes: tuple[int, ...], size_bytes: int) -> Request:
    """What a user of Hocket's programs asks of `hocket order`."""
    return Request(
        algorithm=algorithm,
        size_bytes=size_bytes,
        groups=sizes if algorithm == "two_level" else (),
        # `--far-first`, which is BCube's default.
        far_first=True if algorithm == "halving_doubling" else None,
    )
