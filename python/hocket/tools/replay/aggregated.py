"""Traffic of parameter servers whose pushes are summed on their way: by the switch of each rack, in a pool of slots.

All workers' pushes of a key in one iteration become one stream of pieces. A worker sends piece *i* once its switch has passed on
the sum of piece *i - slots*, whose slot it reuses; the switch says so with a short message. Switches of racks pass their sums to
that of the server, which sends one sum for all. So a trunk carries a gradient once and the server's link too, where W workers sent
W (Lao et al. 2021, "ATP"). A lost piece is sent again after a timeout. Answers of servers go to each worker, as recorded.

What a switch is: the first that a host's link leads to. Ranks two links apart have the same one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace

import numpy as np
from msgspec import structs

from hocket.artefacts.network import Network, Path
from hocket.errors import UsageError
from hocket.tools.replay.pieces import Piece
from hocket.tools.replay.traffic import MESSAGES_MAX, Message, Traffic
from hocket.tools.simulation.aggregation import Switch

RELEASED_BYTES = 64
"""Length of the message that a slot is free: the smallest frame of Ethernet."""

PUSH = 0
"""Code of a worker's push in `formats.dlc`."""


@dataclass(frozen=True)
class Aggregated:
    """The traffic with its switches as further nodes, and the network with them. `pieces`: what switches sum, in their order."""

    traffic: Traffic
    network: Network
    switches: tuple[int, ...]
    pieces: tuple[Piece, ...]


def aggregated(traffic: Traffic, network: Network, switch: Switch, seed: int) -> Aggregated:
    """Sum the pushes of each key that all workers push in an iteration; others go as recorded. Lost pieces are drawn by `seed`.

    Raises UsageError: no push can be summed, hosts have several ranks or no switch, or there are too many pieces.
    """
    switch.check()
    racks = _racks(network)
    groups = _groups(traffic)
    if not groups:
        raise UsageError(
            "no key is pushed by all workers of the trace in an iteration: a switch has nothing to sum\n"
            "hint: give the files of all nodes of a run with parameter servers"
        )
    world = len(traffic.nodes)
    count = max(racks) + 1
    summing = _Summing(traffic, switch, racks, np.random.default_rng(seed))
    for group in groups.values():
        summing.add(group)
    made = summing.messages()
    names = (*traffic.nodes, *(f"switch {rack}" for rack in range(count)))
    return Aggregated(
        structs.replace(traffic, nodes=names, messages=tuple(made)),
        _with_switches(network, racks),
        tuple(range(world, world + count)),
        tuple(summing.pieces),
    )


def _groups(traffic: Traffic) -> dict[tuple[int, int, int], list[int]]:
    """Return messages by iteration, key and server that all workers push, in order of the record."""
    found: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for at, each in enumerate(traffic.messages):
        if each.kind and each.kind[0] == PUSH and each.source < traffic.workers <= each.destination:
            found[each.iteration, each.kind[1], each.destination].append(at)
    everyone = set(range(traffic.workers))
    return {
        group: own
        for group, own in found.items()
        if len(own) == len(everyone) > 1
        and {traffic.messages[at].source for at in own} == everyone
        and len({traffic.messages[at].bytes for at in own}) == 1
    }


@dataclass
class _New:
    """A message in the making; `old`: recorded ones that it waits for."""

    message: Message
    old: tuple[int, ...] = ()


@dataclass
class _Summing:
    traffic: Traffic
    switch: Switch
    racks: tuple[int, ...]
    chance: np.random.Generator
    made: list[_New] = field(default_factory=list)
    arrives: dict[int, int] = field(default_factory=dict)
    """New message whose arrival is that of a recorded push; and below, whose departure is."""
    leaves: dict[int, int] = field(default_factory=dict)
    pieces: list[Piece] = field(default_factory=list)
    """Pieces of the whole job."""

    def add(self, group: list[int]) -> None:
        """Add the pieces of one key's pushes."""
        recorded = {self.traffic.messages[at].source: at for at in group}
        first = self.traffic.messages[group[0]]
        ready = {}
        for worker, at in recorded.items():
            each = self.traffic.messages[at]
            moment = structs.replace(each, destination=worker, bytes=0, after=(), iteration=-1)
            ready[worker] = self._put(moment, each.after)
        pieces = max(1, -(-first.bytes // self.switch.slot_bytes))
        if len(self.made) + 3 * pieces * len(recorded) > MESSAGES_MAX:
            raise UsageError(
                f"pieces of {self.switch.slot_bytes} bytes are more than {MESSAGES_MAX:,} messages\n"
                "hint: simulate larger slots, fewer of them, or record fewer iterations"
            )
        last: dict[int, int] = {}
        total, first_piece = 0, len(self.pieces)
        for piece in range(pieces):
            size = min(self.switch.slot_bytes, first.bytes - piece * self.switch.slot_bytes)
            free = self.pieces[-self.switch.slots].freed if len(self.pieces) >= self.switch.slots else {}
            for worker, begun in ready.items():
                after = (begun, *((free[worker],) if worker in free else ()))
                last[worker] = self._sent(worker, size, after)
            total = self._summed(first.destination, first_piece, size, last)
        for worker, at in recorded.items():
            self.arrives[at], self.leaves[at] = total, last[worker]

    def messages(self) -> list[Message]:
        """Return all messages, with what each waits for as numbers among them."""
        summed = set(self.arrives)
        for at, each in enumerate(self.traffic.messages):
            if at not in summed:
                self.arrives[at] = self.leaves[at] = self._put(structs.replace(each, after=()), each.after)
        found = []
        for new in self.made:
            own = new.message.source
            waits = tuple(
                (self.arrives if self.traffic.messages[at].destination == own else self.leaves)[at]
                for at in new.old
            )
            found.append(structs.replace(new.message, after=(*new.message.after, *waits)))
        return found

    def _sent(self, worker: int, size: int, after: tuple[int, ...]) -> int:
        """Add a piece to the worker's switch, and what is lost of it before; return the one that arrives."""
        gap_s = 0.0
        lost = int(self.chance.geometric(1 - self.switch.loss)) - 1 if self.switch.loss else 0
        for _ in range(lost):
            after = (self._put(Message(worker, self._at(worker), size, after, gap_s, -1)),)
            gap_s = self.switch.timeout_s
        return self._put(Message(worker, self._at(worker), size, after, gap_s, -1))

    def _summed(self, server: int, first: int, size: int, pieces: dict[int, int]) -> int:
        """Add the sums of a piece, by rack and of all, and the news that its slots are free; return the one to the server. `first`:
        number of the key's first piece."""
        home = self._at(server)
        by_rack: dict[int, list[int]] = defaultdict(list)
        for worker, piece in pieces.items():
            by_rack[self._at(worker)].append(piece)
        arrived = list(by_rack.pop(home, []))
        parts = {home: tuple(arrived)}
        for rack, own in by_rack.items():
            arrived.append(self._put(Message(rack, home, size, tuple(own), 0.0, -1)))
            parts[rack] = tuple(own)
        total = self._put(Message(home, server, size, tuple(arrived), 0.0, -1))
        # The slot of the server's switch is of all racks' pieces, that of another one of its own workers'.
        parts[home] = tuple(arrived)
        freed = {
            worker: self._put(
                Message(self._at(worker), worker, RELEASED_BYTES, parts[self._at(worker)], 0.0, -1)
            )
            for worker in pieces
        }
        self.pieces.append(Piece(size, server, first, dict(pieces), freed, total))
        return total

    def _at(self, rank: int) -> int:
        """Return the node of the rank's switch."""
        return len(self.traffic.nodes) + self.racks[rank]

    def _put(self, message: Message, old: tuple[int, ...] = ()) -> int:
        self.made.append(_New(message, old))
        return len(self.made) - 1


def _racks(network: Network) -> tuple[int, ...]:
    """Return the switch of each rank, numbered in the order of ranks. Raises UsageError where there is none."""
    if network.world < 2 or len(set(network.hosts)) < network.world:
        raise UsageError("switches sum for hosts with one rank each, two at least")
    racks: list[int] = []
    heads: list[int] = []
    for rank in range(network.world):
        lengths = [len(network.path(rank, head)[0]) for head in heads]
        if 1 in lengths:
            raise UsageError("hosts are wired to one another: there is no switch between them that could sum")
        if 2 in lengths:
            racks.append(lengths.index(2))
        else:
            racks.append(len(heads))
            heads.append(rank)
    return tuple(racks)


def _with_switches(network: Network, racks: tuple[int, ...]) -> Network:
    """Return the network with a node for each switch, beside the ranks' own links."""
    world = network.world
    heads = [racks.index(rack) for rack in range(max(racks) + 1)]

    def half_s(rank: int) -> float:
        """Return the latency between a rank and its switch: half of that to a neighbour, or a quarter of that to another rack."""
        beside = next(
            (other for other in range(world) if other != rank and racks[other] == racks[rank]), None
        )
        if beside is not None:
            return network.path(rank, beside)[1] / 2
        return network.path(rank, 0 if rank else 1)[1] / 4

    def path(source: int, destination: int) -> Path:
        if source < world and destination < world:
            return network.path(source, destination)
        if source < world:
            other = 0 if source else 1
            return network.path(source, other)[0][:1], half_s(source)
        if destination < world:
            other = 0 if destination else 1
            return network.path(other, destination)[0][-1:], half_s(destination)
        ends = heads[source - world], heads[destination - world]
        links, latency_s = network.path(*ends)
        return links[1:-1], max(0.0, latency_s - half_s(ends[0]) - half_s(ends[1]))

    first = max(network.hosts) + 1
    hosts = (*network.hosts, *range(first, first + len(heads)))
    return replace(network, hosts=hosts, path=path, title=f"{network.title} whose switches sum", cards=())
