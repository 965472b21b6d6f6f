"""`Hosts`: collectives of a group whose ranks are on several hosts.

Each host does its part in shared memory, and the first rank of each, its leader, runs verified programs with the other
leaders (`programs`). Large tensors pass in pieces: while one is on the wire, the next is reduced within the host, and
the previous one is distributed to its ranks. Only collectives whose sizes are known to sender and receiver alone travel as
messages: gather, scatter and all-to-all. Hosts are in the order of their first ranks.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

import numpy as np

from hocket import _native
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.errors import Error, UsageError
from hocket.torch.backend.calls import Calls
from hocket.torch.backend.programs import Call, Loaded, Programs
from hocket.torch.backend.tensors import Lent

PIECE_BYTES = 4 << 20
"""Size of a piece of a large tensor. The network idles only during the copies of the first and the last piece."""
IN_FLIGHT = 8
"""Limit of pieces in flight; more would only take memory."""
TAG = 0xFFFF_FFFF
"""Tag of messages, below the group's number; torch's own tags are positive."""


class Hosts:
    """This rank's end. `hosts`: the group's ranks (in the world) by host, each host's in the group's order."""

    def __init__(
        self,
        engine: _native.Engine,
        local: _native.HostGroup,
        programs: Programs,
        calls: Calls,
        *,
        ranks: Sequence[int],
        hosts: Sequence[Sequence[int]],
        own: int,
        tag: int,
        timeout_s: float,
    ) -> None:
        """Take the movers. `ranks`: ranks of the group, in its order; `own`: this rank; `local`: group of this host's ranks;
        `programs`, `calls`: those of the leaders; `tag`: the group's number, shifted."""
        self._engine, self._local, self._timeout_s = engine, local, timeout_s
        self._programs, self._calls = programs, calls
        self._ranks, self._hosts, self._tag = list(ranks), [list(host) for host in hosts], tag | TAG
        self._host = next(at for at, host in enumerate(hosts) if own in host)
        self._own, self._here = own, list(hosts[self._host])
        self._leads = own == self._here[0]

    def set_timeout(self, timeout_s: float) -> None:
        """Set the time-out of each wait from now on."""
        self._timeout_s = timeout_s
        self._local.set_timeout(timeout_s)

    def leave(self) -> None:
        """Leave after the last call, and free the group's memory."""
        self._local.leave()
        self._programs.unload()

    def barrier(self) -> None:
        """Meet within the hosts, among them, and within them again."""
        self._calls.begin("barrier")
        self._local.barrier()
        if self._leads:
            self._finish(self._start(Call("all_reduce", (1,), "u8", "max")))
        self._local.barrier()

    def broadcast(self, buffer: Lent, root: int) -> None:
        """Broadcast from the root to its host, to the other leaders, and to their hosts."""
        self._calls.begin(f"broadcast of {buffer[1]} bytes with root {root}")
        rank = self._ranks[root]
        first = self._host_of(rank)

        def before(piece: Lent) -> None:
            if self._host == first:
                self._local.broadcast(piece, self._here.index(rank))

        def after(piece: Lent) -> None:
            if self._host != first:
                self._local.broadcast(piece, 0)

        def call(piece: Lent) -> Call:
            return Call("broadcast", (piece[1],), "u8", root=first)

        self._in_pieces(_parts(buffer, _edges(buffer[1])), call, before, after)

    def all_reduce(self, buffer: Lent, op: str, dtype: str) -> None:
        """Reduce to the leader and among leaders, and broadcast back."""
        self._calls.begin(f"all_reduce ({op}, {dtype}) of {buffer[1]} bytes")

        def call(piece: Lent) -> Call:
            return Call("all_reduce", (piece[1] // ITEM_BYTES[dtype],), dtype, op)

        self._in_pieces(
            _parts(buffer, _edges(buffer[1])),
            call,
            before=lambda piece: self._local.reduce(piece, op, dtype, 0),
            after=lambda piece: self._local.broadcast(piece, 0),
        )

    def reduce(self, buffer: Lent, op: str, dtype: str, root: int) -> None:
        """Reduce to the leader, and to the root's host; only the root's tensor changes."""
        self._calls.begin(f"reduce ({op}, {dtype}) of {buffer[1]} bytes with root {root}")
        rank = self._ranks[root]
        at = self._host_of(rank)
        # A leader's tensor must keep its values, since the root may be another rank of its host.
        shared = self._leads or self._host == at
        block = _Block(buffer[1]) if shared else None
        work = buffer if block is None else block.whole
        if block is not None:
            _copy(work, buffer)
        self._local.reduce(work, op, dtype, 0)
        if self._leads:
            call = Call("reduce", (buffer[1] // ITEM_BYTES[dtype],), dtype, op, root=at)
            loaded = self._start(call, work)
            self._finish(loaded, work if self._host == at else None)
        if self._host == at:
            self._local.broadcast(work, 0)
        if rank == self._own:
            _copy(buffer, work)

    def reduce_scatter(self, inputs: Sequence[Lent], output: Lent, op: str, dtype: str) -> None:
        """Order pieces by host, reduce them to the leader, exchange them so that each leader has its host's, and scatter them."""
        self._calls.begin(f"reduce_scatter ({op}, {dtype}) of {output[1]} bytes for each")
        order = [rank for host in self._hosts for rank in host]
        block = _Block(sum(size for _, size in inputs))
        pieces = block.pieces([output[1]] * len(order))
        for piece, rank in zip(pieces, order, strict=True):
            _copy(piece, inputs[self._ranks.index(rank)])
        self._local.reduce(block.whole, op, dtype, 0)
        if self._leads:
            each = output[1] // ITEM_BYTES[dtype]
            call = Call("reduce_parts", tuple(each * len(host) for host in self._hosts), dtype, op)
            self._finish(self._start(call, block.whole), block.whole)
        mine = [pieces[order.index(rank)] for rank in self._here] if self._leads else []
        self._local.scatter(mine, output, 0)

    def all_gather(self, own: Lent, outputs: Sequence[Lent]) -> None:
        """Gather at the leader and among leaders, and broadcast to all."""
        self._calls.begin(f"all_gather of {sum(size for _, size in outputs)} bytes")
        sizes = {rank: size for rank, (_, size) in zip(self._ranks, outputs, strict=True)}
        order = [rank for host in self._hosts for rank in host]
        block = _Block(sum(sizes.values()))
        pieces = dict(zip(order, block.pieces([sizes[rank] for rank in order]), strict=True))
        self._local.gather(own, [pieces[rank] for rank in self._here] if self._leads else [], 0)
        if self._leads:
            parts = tuple(sum(sizes[rank] for rank in host) for host in self._hosts)
            self._finish(self._start(Call("gather_parts", parts, "u8"), block.whole), block.whole)
        self._local.broadcast(block.whole, 0)
        for rank, output in zip(self._ranks, outputs, strict=True):
            _copy(output, pieces[rank])

    def gather(self, own: Lent, outputs: Sequence[Lent], root: int) -> None:
        """Send each tensor directly to the root."""
        rank = self._ranks[root]
        if rank != self._own:
            self._sent(self._send(rank, own))
            return
        arrivals = []
        for source, output in zip(self._ranks, outputs, strict=True):
            if source == self._own:
                _copy(output, own)
            else:
                arrivals.append((self._receive(source, output[1]), output))
        for arrival, output in arrivals:
            self._land(arrival, output)

    def scatter(self, inputs: Sequence[Lent], output: Lent, root: int) -> None:
        """Receive each tensor directly from the root."""
        rank = self._ranks[root]
        if rank != self._own:
            self._land(self._receive(rank, output[1]), output)
            return
        sent = []
        for to, piece in zip(self._ranks, inputs, strict=True):
            if to == self._own:
                _copy(output, piece)
            else:
                sent.append(self._send(to, piece))
        for each in sent:
            self._sent(each)

    def all_to_all(self, inputs: Sequence[Lent], outputs: Sequence[Lent]) -> None:
        """Send each tensor directly to its rank."""
        sent, arrivals = [], []
        for rank, piece, output in zip(self._ranks, inputs, outputs, strict=True):
            if rank == self._own:
                if piece[1] != output[1]:
                    raise UsageError(
                        f"all_to_all: rank {rank} keeps {piece[1]} bytes where it expects {output[1]}"
                    )
                _copy(output, piece)
                continue
            arrivals.append((self._receive(rank, output[1]), output))
            sent.append(self._send(rank, piece))
        for arrival, output in arrivals:
            self._land(arrival, output)
        for each in sent:
            self._sent(each)

    def _in_pieces(
        self,
        pieces: Sequence[Lent],
        call: Callable[[Lent], Call],
        before: Callable[[Lent], None],
        after: Callable[[Lent], None],
    ) -> None:
        """Run `before`, the program and `after` for each piece.

        All ranks of a host call these in the same order, whatever completes first.
        """
        running: dict[int, Loaded] = {}
        for step in range(len(pieces) + IN_FLIGHT):
            if step < len(pieces):
                before(pieces[step])
                if self._leads:
                    running[step] = self._start(call(pieces[step]), pieces[step])
            done = step - IN_FLIGHT
            if 0 <= done < len(pieces):
                if self._leads:
                    self._finish(running.pop(done), pieces[done])
                after(pieces[done])

    def _start(self, call: Call, source: Lent | None = None) -> Loaded:
        """Launch the call's program over a copy of `source`."""
        loaded = self._programs.take(call)
        if source is not None:
            _copy((loaded.memory.address, source[1]), source)
        self._engine.launch(loaded.number)
        return loaded

    def _finish(self, loaded: Loaded, into: Lent | None = None) -> None:
        """Wait for the program, and copy its result to `into`."""
        try:
            self._engine.wait(loaded.number, self._timeout_s, self._calls.compare)
        except Error:
            self._calls.failed()
            raise
        if into is not None:
            _copy(into, (loaded.memory.address, into[1]))
        self._programs.give(loaded)

    def _host_of(self, rank: int) -> int:
        return next(at for at, host in enumerate(self._hosts) if rank in host)

    def _send(self, to: int, piece: Lent) -> tuple[int, _native.Memory]:
        memory = self._engine.allocate(max(piece[1], 1))
        _copy((memory.address, piece[1]), piece)
        return self._engine.send(to, self._tag, memory, piece[1]), memory

    def _receive(self, source: int, size_bytes: int) -> tuple[int, _native.Memory, int]:
        memory = self._engine.allocate(max(size_bytes, 1))
        return self._engine.receive(source, self._tag, memory, size_bytes), memory, size_bytes

    def _sent(self, sent: tuple[int, _native.Memory]) -> None:
        # The memory must last until the message has left.
        number, _memory = sent
        self._engine.wait_message(number, self._timeout_s)

    def _land(self, arrival: tuple[int, _native.Memory, int], to: Lent) -> None:
        number, memory, size_bytes = arrival
        self._engine.wait_message(number, self._timeout_s)
        _copy(to, (memory.address, size_bytes))


class _Block:
    """Memory that lasts for one collective."""

    def __init__(self, size_bytes: int) -> None:
        self._bytes = np.empty(size_bytes, np.uint8)
        self.whole: Lent = (self._bytes.ctypes.data, size_bytes)

    def pieces(self, sizes: Sequence[int]) -> list[Lent]:
        return _parts(self.whole, [0, *accumulate(sizes)])


def _edges(size_bytes: int) -> list[int]:
    """Return bounds of pieces of nearly equal size, at multiples of eight bytes: a piece holds whole elements of every type."""
    count = max(1, -(-size_bytes // PIECE_BYTES))
    return [size_bytes // 8 * at // count * 8 for at in range(count)] + [size_bytes]


def _parts(buffer: Lent, edges: Sequence[int]) -> list[Lent]:
    return [(buffer[0] + start, end - start) for start, end in pairwise(edges)]


def _copy(to: Lent, source: Lent) -> None:
    ctypes.memmove(to[0], source[0], source[1])
