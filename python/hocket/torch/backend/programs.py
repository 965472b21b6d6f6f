"""Programs between the hosts of a group: compiled and verified once per call, loaded with their own memory, and reused.

The members of these programs are the hosts' leaders. Only ranks of the group load a program, so its number is one of the
group's own (`Engine.load`). All leaders make the same calls in the same order; therefore loading and freeing need no
agreement.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal

from hocket import _native
from hocket._native import Builder, PassOptions, Program
from hocket.artefacts.algorithms import Algorithm
from hocket.artefacts.chunks import chunk_bytes
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.tuning import Tuning
from hocket.errors import UsageError
from hocket.parameter_server import programs as parameter_servers
from hocket.policy import algorithms
from hocket.policy.topology import Topology

What = Literal["all_reduce", "broadcast", "reduce", "gather_parts", "reduce_parts"]
"""Collectives. The last two send each leader's part to all, and reduce each leader's part to it. Parts may differ in size."""

FIRST_NUMBER = 1 << 31
"""First number of programs whose numbers are chosen by the ranks that load them."""
CALL_BITS = 20
"""Bits of a program's number, below its group's, for the call. Leaders with different calls run programs with different numbers,
so that none takes another's bytes for its own."""

IDLE_BYTES_MAX = 256 << 20
"""Memory limit of idle programs; the least recently used ones are freed."""


@dataclass(frozen=True)
class Call:
    """Key of a program. `elements`: number in the whole, or in each leader's part; `root`: a leader's position."""

    what: What
    elements: tuple[int, ...]
    dtype: str
    op: str = "sum"
    root: int = 0

    @property
    def bytes(self) -> int:
        """Size of all elements, in bytes."""
        return sum(self.elements) * ITEM_BYTES[self.dtype]


@dataclass(frozen=True)
class Loaded:
    """Program with its memory; one launch of it runs at a time."""

    call: Call
    number: int
    memory: _native.Memory


class Programs:
    """Programs of one leader. `leaders`: ranks by position, in the order of parts."""

    def __init__(
        self,
        engine: _native.Engine,
        leaders: Sequence[int],
        *,
        topology: Topology,
        tuning: Tuning,
        group: int,
    ) -> None:
        """Start with no program loaded. `group`: its number in the job. UsageError: there are too many groups."""
        groups = (parameter_servers.FIRST_NUMBER - FIRST_NUMBER) >> CALL_BITS
        if group >= groups:
            raise UsageError(
                f"group {group} of this job: programs between hosts can be told apart in {groups}"
            )
        self._engine, self._leaders = engine, list(leaders)
        self._topology, self._tuning = topology, tuning
        # Neighbours in the ring are in one rack where possible.
        self._order = sorted(
            self._leaders, key=lambda rank: (topology.racks[rank], self._leaders.index(rank))
        )
        self._chunk_bytes = chunk_bytes(_slowest_bit_per_s(topology, self._leaders))
        self._first, self._loads = FIRST_NUMBER | group << CALL_BITS, 0
        self._taken: set[int] = set()
        self._idle: OrderedDict[Call, list[Loaded]] = OrderedDict()
        self._idle_bytes = 0

    def take(self, call: Call) -> Loaded:
        """Return an idle program for `call`; its memory is the caller's until `give`."""
        spare = self._idle.get(call)
        if spare:
            loaded = spare.pop()
            self._idle_bytes -= len(loaded.memory)
            return loaded
        memory = self._engine.allocate(max(call.bytes, 1))
        program = self.compiled(call)
        number = self._number(call)
        self._engine.load(program, {0: (memory, 0)}, priority=0, label=program.name, number=number)
        return Loaded(call, number, memory)

    def give(self, loaded: Loaded) -> None:
        """Return a program whose launch has been awaited."""
        self._idle.setdefault(loaded.call, []).append(loaded)
        self._idle.move_to_end(loaded.call)
        self._idle_bytes += len(loaded.memory)
        while self._idle_bytes > IDLE_BYTES_MAX:
            self._free_oldest()

    def unload(self) -> None:
        """Free all idle programs, after the group's last call."""
        while self._idle:
            self._free_oldest()

    def compiled(self, call: Call) -> Program:
        """Return the call's program: lowered, chunked for the slowest link, and verified."""
        builder = Builder(f"{call.what} between hosts", self._topology.world)
        edges = [0, *accumulate(call.elements)]
        collectives = [
            (what, root, part, *self._algorithm(what, call.bytes))
            for what, root, part in self._collectives(call, edges)
        ]
        for rank in self._leaders:
            buffer = builder.buffer(rank, "data", call.dtype, edges[-1], "bound")
            for what, root, (start, stop), algorithm, numbers in collectives:
                builder.collective(
                    rank,
                    what,
                    (buffer, start, stop),
                    members=self._order,
                    op=call.op,
                    scale=1.0,
                    algorithm=algorithm,
                    numbers=numbers,
                    root=root,
                    dst=None,
                    source=None,
                )
        if call.what == "all_reduce":
            builder.ensure_all_reduce(0, self._leaders, call.op, 1.0)
        program = builder.finish().compiled(PassOptions(chunk_bytes=self._chunk_bytes))
        program.verify()
        return program

    def _free_oldest(self) -> None:
        oldest, spare = next(iter(self._idle.items()))
        if spare:
            freed = spare.pop()
            self._idle_bytes -= len(freed.memory)
            self._engine.unload(freed.number)
            self._taken.remove(freed.number)
        if not spare:
            del self._idle[oldest]

    def _number(self, call: Call) -> int:
        while True:
            digest = hashlib.sha256(f"{self._loads} {call}".encode()).digest()
            self._loads += 1
            number = self._first | int.from_bytes(digest[:4], "little") % (1 << CALL_BITS)
            if number not in self._taken:
                self._taken.add(number)
                return number

    def _collectives(self, call: Call, edges: Sequence[int]) -> list[tuple[str, int | None, tuple[int, int]]]:
        """Return name, root and range of elements of each collective."""
        if call.what in ("gather_parts", "reduce_parts"):
            # A chain from, or to, each leader: together they form the ring, for parts of any size.
            name = "broadcast" if call.what == "gather_parts" else "reduce"
            return [
                (name, root, part)
                for root, part in zip(self._leaders, pairwise(edges), strict=True)
                if part[0] < part[1]
            ]
        root = None if call.what == "all_reduce" else self._leaders[call.root]
        return [(call.what, root, (0, edges[-1]))]

    def _algorithm(self, what: str, size_bytes: int) -> Algorithm:
        return algorithms.choose(what, self._order, size_bytes, self._topology, self._tuning)


def _slowest_bit_per_s(topology: Topology, ranks: Sequence[int]) -> float:
    return min(topology.link(a, b).bandwidth for a in ranks for b in ranks if a != b)
