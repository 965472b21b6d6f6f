"""Runs all ranks of a program in one process, an op at a time, with the rendezvous of the real wire and no buffering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hocket._native import Program
from hocket.errors import ProgramError
from hocket.reference import ops
from hocket.reference.ops import Array


@dataclass
class _Rank:
    """One rank's memory and what of its program is done."""

    ops: list[dict[str, Any]]
    dtypes: list[str]
    buffers: list[Array]
    done: list[bool] = field(default_factory=list)

    def ready(self, op: int) -> bool:
        return not self.done[op] and all(self.done[before] for before in self.ops[op]["after"])

    def slice(self, where: tuple[int, int, int]) -> Array:
        buffer, start, stop = where
        return self.buffers[buffer][start:stop]


def run(program: Program, inputs: Sequence[Sequence[Array]]) -> list[tuple[int, int]]:
    """Run `program`; `inputs[rank]` are its bound buffers in order, changed in place.

    Arrays are one-dimensional, of the buffer's length and stored type (`ops.STORED`). Returns (rank, element) of each
    non-finite record. Raises ProgramError when ranks wait for one another in a circle.
    """
    ranks = [_rank(program, rank, inputs[rank]) for rank in range(program.world)]
    found: list[tuple[int, int]] = []
    while not all(all(rank.done) for rank in ranks):
        moved = False
        for index, rank in enumerate(ranks):
            for op in range(len(rank.ops)):
                if rank.ready(op) and _try(ranks, index, op, found):
                    moved = True
        if not moved:
            stuck = [(i, op) for i, rank in enumerate(ranks) for op in range(len(rank.ops)) if rank.ready(op)]
            raise ProgramError(f"program `{program.name}` is stuck: (rank, op) {stuck} wait for one another")
    return found


def _rank(program: Program, rank: int, inputs: Sequence[Array]) -> _Rank:
    given = iter(inputs)
    declared = program.buffers(rank)
    buffers = []
    for name, dtype, elements, scratch in declared:
        array = np.full(elements, 0xAA, ops.STORED[dtype]) if scratch else next(given)
        if array.shape != (elements,) or array.dtype != ops.STORED[dtype]:
            raise ProgramError(
                f"rank {rank}: buffer `{name}` is {elements} of {dtype}, given {array.shape} {array.dtype}"
            )
        buffers.append(array)
    listed = program.ops(rank)
    return _Rank(listed, [dtype for _, dtype, _, _ in declared], buffers, [False] * len(listed))


def _try(ranks: list[_Rank], index: int, op: int, found: list[tuple[int, int]]) -> bool:
    """Do an op whose dependencies are met; False when it waits for a peer."""
    rank = ranks[index]
    fields = rank.ops[op]
    match fields["op"]:
        case "send":
            return False  # the receive moves the data and completes both ends
        case "recv":
            return _receive(ranks, index, op)
        case "all_reduce":
            raise ProgramError("a collective is left: lower the program before it is run")
        case _:
            _local(rank, fields, index, found)
    rank.done[op] = True
    return True


def _receive(ranks: list[_Rank], index: int, op: int) -> bool:
    rank = ranks[index]
    fields = rank.ops[op]
    peer = ranks[fields["peer"]]
    for other, sent in enumerate(peer.ops):
        if (
            sent["op"] == "send"
            and sent["peer"] == index
            and sent["tag"] == fields["tag"]
            and peer.ready(other)
        ):
            wire = ops.cast(peer.slice(sent["src"]), peer.dtypes[sent["src"][0]], sent["wire"])
            target = rank.slice(fields["dst"])
            dtype = rank.dtypes[fields["dst"][0]]
            arrived = ops.cast(wire, fields["wire"], dtype)
            target[:] = (
                arrived if fields["reduce"] is None else ops.reduce(fields["reduce"], target, arrived, dtype)
            )
            rank.done[op] = peer.done[other] = True
            return True
    return False


def _local(rank: _Rank, fields: dict[str, Any], index: int, found: list[tuple[int, int]]) -> None:
    match fields["op"]:
        case "copy" | "cast":
            source, target = fields["src"], fields["dst"]
            dtypes = rank.dtypes[source[0]], rank.dtypes[target[0]]
            rank.slice(target)[:] = ops.cast(rank.slice(source), *dtypes)
        case "reduce":
            source, target = fields["src"], fields["dst"]
            dtype = rank.dtypes[target[0]]
            arrived = ops.cast(rank.slice(source), rank.dtypes[source[0]], dtype)
            rank.slice(target)[:] = ops.reduce(fields["reduce"], rank.slice(target), arrived, dtype)
        case "apply":
            target = rank.slice(fields["dst"])
            dtype = rank.dtypes[fields["dst"][0]]
            if "scale" in fields:
                target[:] = ops.scale(target, fields["scale"], dtype)
            else:
                target[:] = ops.round_to(target, dtype, fields["round"])
        case "record":
            at = ops.first_non_finite(rank.slice(fields["src"]), rank.dtypes[fields["src"][0]])
            if at is not None:
                found.append((index, fields["src"][1] + at))
