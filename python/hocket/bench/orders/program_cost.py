"""What a launch of a Hocket program costs in an order of ranks: the longest chain of its ops.

A message leaves when its sender is ready and has heard that the receive is posted, which takes the way back. So algorithms whose
receives wait for one another pay round trips, which the rounds of a textbook do not show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hocket._native import Program
from hocket.artefacts.cluster import Cluster
from hocket.bench.orders.cost import CALLS, Orders, Seconds
from hocket.errors import ProgramError

BCUBE_BASE = 4
NATIVE = ("ring", "halving_doubling", "double_binary_tree", "bcube")
"""Algorithms of Hocket's own programs."""

Key = tuple[int, int, int]
"""Source, destination, tag."""


@dataclass(frozen=True)
class Op:
    """A node of one rank. `sends` or `receives`: its message; `after`: nodes of the same rank."""

    after: tuple[int, ...]
    sends: Key | None = None
    receives: Key | None = None
    elements: int = 0


def native_program(algorithm: str, world: int, size_bytes: int) -> Program:
    """An all-reduce of floats to their mean, lowered, ranks in their own order."""
    return Program.all_reduce(
        name=algorithm,
        world=world,
        elements=size_bytes // 4,
        dtype="f32",
        op="sum",
        scale=1.0 / world,
        algorithm=algorithm,
        sizes=(BCUBE_BASE,) if algorithm == "bcube" else (),
        record_non_finite=False,
    ).lower()


def costs_s(program: Program, cluster: Cluster, orders: Orders, element_bytes: int) -> Seconds:
    """By order: seconds per launch of the program, in a row. `orders[i][rank]` is the index of a host."""
    ranks = ops_of(program)
    latency_s = np.asarray(cluster.latency_s)
    second_per_element = element_bytes * 8 / min(host.bandwidth_bit_per_s for host in cluster.hosts)
    launches: list[Seconds] = [np.zeros(len(orders)) for _ in ranks]
    ends = [launches]
    for _ in range(CALLS):
        ends.append(_launch(ranks, ends[-1], orders, latency_s, second_per_element))
    first, last = (np.max(ends[at], axis=0) for at in (CALLS // 2, CALLS))
    growth: Seconds = (last - first) / (CALLS - CALLS // 2)
    return growth


def ops_of(program: Program) -> list[list[Op]]:
    """The ops of each rank.

    >>> ops_of(native_program("ring", 2, 8))[0][0].sends
    (0, 1, 0)
    """
    return [[_op(rank, fields) for fields in program.ops(rank)] for rank in range(program.world)]


def _op(rank: int, fields: dict[str, Any]) -> Op:
    after = tuple(fields["after"])
    match fields["op"]:
        case "send":
            _, start, stop = fields["src"]
            return Op(after, sends=(rank, fields["peer"], fields["tag"]), elements=stop - start)
        case "recv":
            _, start, stop = fields["dst"]
            return Op(after, receives=(fields["peer"], rank, fields["tag"]), elements=stop - start)
    return Op(after)


def _launch(
    ranks: list[list[Op]],
    begins: list[Seconds],
    orders: Orders,
    latency_s: Seconds,
    second_per_element: float,
) -> list[Seconds]:
    """When each rank has ended all its ops."""
    done: dict[tuple[int, int], Seconds] = {}
    offered: dict[Key, Seconds] = {}
    posted: dict[Key, Seconds] = {}
    waiting = [(rank, at) for rank, ops in enumerate(ranks) for at in range(len(ops))]
    while waiting:
        left = []
        for rank, at in waiting:
            op = ranks[rank][at]
            if any((rank, each) not in done for each in op.after):
                left.append((rank, at))
                continue
            ready = np.maximum.reduce([begins[rank], *(done[rank, each] for each in op.after)])
            if op.sends is not None:
                offered[op.sends] = ready
            if op.receives is not None:
                posted[op.receives] = ready
            key = op.sends or op.receives
            if key is None:
                done[rank, at] = ready
            elif key in offered and key in posted:
                source, target = orders[:, key[0]], orders[:, key[1]]
                leaves = np.maximum(offered[key], posted[key] + latency_s[target, source])
                arrives = leaves + latency_s[source, target] + op.elements * second_per_element
                done[rank, at] = leaves if op.sends else arrives
            else:
                left.append((rank, at))
        if len(left) == len(waiting):
            raise ProgramError("ops wait for one another in a circle, or for messages that nobody sends")
        waiting = left
    return [
        np.maximum.reduce([begins[rank], *(done[rank, at] for at in range(len(ops)))])
        for rank, ops in enumerate(ranks)
    ]
