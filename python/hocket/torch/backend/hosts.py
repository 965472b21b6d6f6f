"""`Hosts`: the collectives of a group whose ranks are on several hosts.

Every host does its part in shared memory; the first rank of each, its leader, speaks with the other leaders by messages of the
wire. Reductions and gathers go around the ring of leaders, so each host's link carries what it must and no more (Patarasuk and
Yuan, 2009); a broadcast goes down their chain in chunks. Hosts come in the order of their first ranks; all ranks get the same bits,
since one leader reduces each part for all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from itertools import accumulate, pairwise

import numpy as np

from hocket import _native
from hocket.errors import UsageError
from hocket.torch.backend.tensors import Lent

CHUNK_BYTES = 1 << 20
"""Of a broadcast: what the next host of the chain waits for."""
Reduction = tuple[str, str]
"""Its name, and that of the elements."""
TAG = 0xFFFF_FFFF
"""Below the group's number; torch's own tags are positive."""


class Hosts:
    """This rank's end. `hosts`: the group's ranks (of the world) by host, each host's in the group's order."""

    def __init__(
        self,
        engine: _native.Engine,
        local: _native.HostGroup,
        *,
        ranks: Sequence[int],
        hosts: Sequence[Sequence[int]],
        own: int,
        tag: int,
        timeout_s: float,
    ) -> None:
        """`ranks`: the group's, in its order; `own`: ours; `local`: the group of our host's; `tag`: the group's number, shifted."""
        self._engine, self._local, self._timeout_s = engine, local, timeout_s
        self._ranks, self._hosts, self._tag = list(ranks), [list(host) for host in hosts], tag | TAG
        self._host = next(at for at, host in enumerate(hosts) if own in host)
        self._own, self._here = own, list(hosts[self._host])
        self._leads = own == self._here[0]
        self._spare: dict[int, list[_native.Memory]] = {}

    def set_timeout(self, timeout_s: float) -> None:
        """Of each wait from now on."""
        self._timeout_s = timeout_s
        self._local.set_timeout(timeout_s)

    def barrier(self) -> None:
        """Within the hosts, among them, and within again."""
        self._local.barrier()
        if self._leads:
            token = np.zeros(1, np.uint8)
            self._all_reduce_leaders((token.ctypes.data, 1), "max", "u8")
        self._local.barrier()

    def broadcast(self, buffer: Lent, root: int) -> None:
        """From the root to its host, and down the chain of leaders."""
        rank = self._ranks[root]
        first = next(at for at, host in enumerate(self._hosts) if rank in host)
        if self._host == first:
            self._local.broadcast(buffer, self._here.index(rank))
        if self._leads:
            self._broadcast_leaders(buffer, first)
        if self._host != first:
            self._local.broadcast(buffer, 0)

    def all_reduce(self, buffer: Lent, op: str, dtype: str) -> None:
        """To the leader, around the ring, and back."""
        self._local.reduce(buffer, op, dtype, 0)
        if self._leads:
            self._all_reduce_leaders(buffer, op, dtype)
        self._local.broadcast(buffer, 0)

    def reduce(self, buffer: Lent, op: str, dtype: str, root: int) -> None:
        """An all-reduce of a copy, which the root keeps."""
        copy = _Block(buffer[1])
        _copy(copy.whole, buffer)
        self.all_reduce(copy.whole, op, dtype)
        if self._ranks[root] == self._own:
            _copy(buffer, copy.whole)

    def reduce_scatter(self, inputs: Sequence[Lent], output: Lent, op: str, dtype: str) -> None:
        """Pieces are ordered by host, reduced to the leader, which passes each host's block around the ring, and scattered."""
        order = [rank for host in self._hosts for rank in host]
        block = _Block(sum(size for _, size in inputs))
        pieces = block.pieces([output[1]] * len(order))
        for piece, rank in zip(pieces, order, strict=True):
            _copy(piece, inputs[self._ranks.index(rank)])
        self._local.reduce(block.whole, op, dtype, 0)
        edges = [
            output[1] * sum(len(host) for host in self._hosts[:at]) for at in range(len(self._hosts) + 1)
        ]
        if self._leads:
            self._reduce_scatter_leaders(block.whole, edges, op, dtype)
        mine = [pieces[order.index(rank)] for rank in self._here] if self._leads else []
        self._local.scatter(mine, output, 0)

    def all_gather(self, own: Lent, outputs: Sequence[Lent]) -> None:
        """To the leader, around the ring, and to all."""
        sizes = {rank: size for rank, (_, size) in zip(self._ranks, outputs, strict=True)}
        order = [rank for host in self._hosts for rank in host]
        block = _Block(sum(sizes.values()))
        pieces = dict(zip(order, block.pieces([sizes[rank] for rank in order]), strict=True))
        self._local.gather(own, [pieces[rank] for rank in self._here] if self._leads else [], 0)
        if self._leads:
            edges = [0, *accumulate(sum(sizes[rank] for rank in host) for host in self._hosts)]
            self._all_gather_leaders(block.whole, edges)
        self._local.broadcast(block.whole, 0)
        for rank, output in zip(self._ranks, outputs, strict=True):
            _copy(output, pieces[rank])

    def gather(self, own: Lent, outputs: Sequence[Lent], root: int) -> None:
        """Each straight to the root."""
        rank = self._ranks[root]
        if rank != self._own:
            self._finish(self._send(rank, own))
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
        """Each straight from the root."""
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
            self._finish(each)

    def all_to_all(self, inputs: Sequence[Lent], outputs: Sequence[Lent]) -> None:
        """Each straight to each."""
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
            self._finish(each)

    def _all_reduce_leaders(self, buffer: Lent, op: str, dtype: str) -> None:
        count = len(self._hosts)
        # Parts at multiples of eight bytes hold whole elements of every type.
        edges = [buffer[1] // 8 * at // count * 8 for at in range(count)] + [buffer[1]]
        self._reduce_scatter_leaders(buffer, edges, op, dtype)
        self._all_gather_leaders(buffer, edges)

    def _reduce_scatter_leaders(self, buffer: Lent, edges: Sequence[int], op: str, dtype: str) -> None:
        """Afterwards part `host` of ours is reduced over all hosts."""
        parts, count = _parts(buffer, edges), len(self._hosts)
        for step in range(1, count):
            going, coming = parts[(self._host - step) % count], parts[(self._host - step - 1) % count]
            self._shift(going, coming, (op, dtype))

    def _all_gather_leaders(self, buffer: Lent, edges: Sequence[int]) -> None:
        """Each host's part, from it to all."""
        parts, count = _parts(buffer, edges), len(self._hosts)
        for step in range(count - 1):
            going, coming = parts[(self._host - step) % count], parts[(self._host - step - 1) % count]
            self._shift(going, coming, None)

    def _shift(self, going: Lent, coming: Lent, reduction: Reduction | None) -> None:
        """One step of the ring."""
        arrival = self._receive(self._leader(self._host - 1), coming[1])
        sent = self._send(self._leader(self._host + 1), going)
        self._land(arrival, coming, reduction)
        self._finish(sent)

    def _broadcast_leaders(self, buffer: Lent, first: int) -> None:
        count = len(self._hosts)
        place = (self._host - first) % count
        edges = [*range(0, buffer[1], CHUNK_BYTES), buffer[1]]
        chunks, sent = _parts(buffer, edges), []
        before, after = self._leader(self._host - 1), self._leader(self._host + 1)
        arrivals = [self._receive(before, chunk[1]) for chunk in chunks] if place else []
        for at, chunk in enumerate(chunks):
            if place:
                self._land(arrivals[at], chunk)
            if place + 1 < count:
                sent.append(self._send(after, chunk))
        for each in sent:
            self._finish(each)

    def _leader(self, host: int) -> int:
        return self._hosts[host % len(self._hosts)][0]

    def _send(self, to: int, piece: Lent) -> tuple[int, _native.Memory]:
        memory = self._memory(piece[1])
        _copy((memory.address, piece[1]), piece)
        return self._engine.send(to, self._tag, memory, piece[1]), memory

    def _receive(self, source: int, size_bytes: int) -> tuple[int, _native.Memory, int]:
        memory = self._memory(size_bytes)
        return self._engine.receive(source, self._tag, memory, size_bytes), memory, size_bytes

    def _finish(self, sent: tuple[int, _native.Memory]) -> None:
        number, memory = sent
        self._engine.wait_message(number, self._timeout_s)
        self._spare[len(memory)].append(memory)

    def _land(
        self, arrival: tuple[int, _native.Memory, int], to: Lent, reduction: Reduction | None = None
    ) -> None:
        number, memory, size_bytes = arrival
        self._engine.wait_message(number, self._timeout_s)
        if reduction is None:
            _copy(to, (memory.address, size_bytes))
        else:
            _native.reduce_bytes(to, (memory.address, size_bytes), *reduction)
        self._spare[len(memory)].append(memory)

    def _memory(self, size_bytes: int) -> _native.Memory:
        """Registered; of a few sizes, so that it is used again."""
        size = 1 << max(size_bytes - 1, 0).bit_length()
        spare = self._spare.setdefault(size, [])
        return spare.pop() if spare else self._engine.allocate(size)


class _Block:
    """Memory that lasts for one collective."""

    def __init__(self, size_bytes: int) -> None:
        self._bytes = np.empty(size_bytes, np.uint8)
        self.whole: Lent = (self._bytes.ctypes.data, size_bytes)

    def pieces(self, sizes: Sequence[int]) -> list[Lent]:
        return _parts(self.whole, [0, *accumulate(sizes)])


def _parts(buffer: Lent, edges: Sequence[int]) -> list[Lent]:
    return [(buffer[0] + start, end - start) for start, end in pairwise(edges)]


def _copy(to: Lent, source: Lent) -> None:
    ctypes.memmove(to[0], source[0], source[1])
