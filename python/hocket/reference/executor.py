"""Executor of all ranks of a program in one process, op by op, with the rendezvous of the real wire and no buffering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hocket._native import Program
from hocket.errors import ProgramError
from hocket.reference import ops
from hocket.reference.kernels import KERNELS, Kernel
from hocket.reference.ops import Array


@dataclass
class _Rank:
    """One rank's memory and its finished ops."""

    ops: list[dict[str, Any]]
    dtypes: list[str]
    buffers: list[Array]
    kernels: Mapping[str, Kernel]
    done: list[bool] = field(default_factory=list)

    def ready(self, op: int) -> bool:
        return not self.done[op] and all(self.done[before] for before in self.ops[op]["after"])

    def slice(self, where: tuple[int, int, int]) -> Array:
        buffer, start, stop = where
        return self.buffers[buffer][start:stop]


State = dict[tuple[int, str], Array]
"""Contents of state buffers by (rank, name), kept from run to run."""


def run(
    program: Program,
    inputs: Sequence[Sequence[Array]],
    *,
    state: State | None = None,
    kernels: Mapping[str, Kernel] | None = None,
) -> list[tuple[int, int]]:
    """Run `program`; `inputs[rank]` are the rank's bound buffers in order, modified in place.

    Arrays are one-dimensional, of the buffer's length and stored type (`ops.STORED`). `state` is changed in place too;
    `kernels` are the user's, by name. Returns (rank, element) of each non-finite record. Raises ProgramError when ranks wait for
    one another in a circle.
    """
    state = {} if state is None else state
    known = {**KERNELS, **(kernels or {})}
    ranks = [_rank(program, rank, inputs[rank], state, known) for rank in range(program.world)]
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


def _rank(
    program: Program, rank: int, inputs: Sequence[Array], state: State, kernels: Mapping[str, Kernel]
) -> _Rank:
    given = iter(inputs)
    declared = program.buffers(rank)
    buffers = []
    for name, dtype, elements, kind, _ in declared:
        stored = ops.STORED[dtype]
        if kind == "scratch":
            array = np.frombuffer(b"\xaa" * (elements * np.dtype(stored).itemsize), stored).copy()
        elif kind == "bound":
            array = next(given)
        else:
            array = state.setdefault((rank, name), np.zeros(elements, stored))
        if array.shape != (elements,) or array.dtype != ops.STORED[dtype]:
            raise ProgramError(
                f"rank {rank}: buffer `{name}` is {elements} of {dtype}, given {array.shape} {array.dtype}"
            )
        buffers.append(array)
    listed = program.ops(rank)
    return _Rank(listed, [dtype for _, dtype, *_ in declared], buffers, kernels, [False] * len(listed))


def _try(ranks: list[_Rank], index: int, op: int, found: list[tuple[int, int]]) -> bool:
    """Execute an op with finished dependencies; False if it waits for a peer."""
    rank = ranks[index]
    fields = rank.ops[op]
    match fields["op"]:
        case "send":
            return False  # the receive moves the data and completes both ends
        case "recv":
            return _receive(ranks, index, op)
        case "copy" | "cast" | "reduce" | "apply" | "record" | "call":
            _local(rank, fields, index, found)
        case collective if "together" in fields:
            return _together(ranks, index, op, collective)
        case collective:
            raise ProgramError(f"{collective} is left: lower the program before it is run")
    rank.done[op] = True
    return True


def _together(ranks: list[_Rank], index: int, op: int, collective: str) -> bool:
    """Execute the collective when its last member has arrived."""
    own = ranks[index].ops[op]
    group = own["group"]
    # Members of a group call its collectives in the same order.
    turn = _calls(ranks[index], own).index(op)
    members = [(ranks[member], _calls(ranks[member], own)) for member in group]
    places = [(rank, calls[turn]) for rank, calls in members]
    if not all(rank.ready(place) for rank, place in places):
        return False
    dtype = ranks[index].dtypes[own["slice"][0]]
    slices = [rank.slice(rank.ops[place]["slice"]) for rank, place in places]
    targets = [rank.slice(rank.ops[place]["dst"]) for rank, place in places] if "dst" in own else None
    root = None if own["root"] is None else group.index(own["root"])
    ops.collective(collective, slices, targets, own["reduce"], own["scale"], root, dtype)
    for rank, place in places:
        rank.done[place] = True
    return True


def _calls(rank: _Rank, like: dict[str, Any]) -> list[int]:
    return [
        at
        for at, fields in enumerate(rank.ops)
        if all(fields.get(key) == like.get(key) for key in ("together", "library", "group"))
    ]


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
            counts = [
                None if each["count"] is None else int(owner.slice(each["count"])[0])
                for owner, each in ((peer, sent), (rank, fields))
            ]
            if counts[0] != counts[1]:
                raise ProgramError(f"rank {index} op {op}: expects {counts[1]} elements, gets {counts[0]}")
            wire = ops.cast(peer.slice(sent["src"])[: counts[0]], peer.dtypes[sent["src"][0]], sent["wire"])
            target = rank.slice(fields["dst"])[: counts[0]]
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
        case "call":
            kernel = rank.kernels.get(fields["kernel"])
            if kernel is None:
                raise ProgramError(f"rank {index}: there is no kernel `{fields['kernel']}` to call")
            inputs = [rank.slice(each) for each in fields["inputs"]]
            kernel(inputs, [rank.slice(each) for each in fields["outputs"]], fields["constants"])
        case "record":
            at = ops.first_non_finite(rank.slice(fields["src"]), rank.dtypes[fields["src"][0]])
            if at is not None:
                found.append((index, fields["src"][1] + at))
