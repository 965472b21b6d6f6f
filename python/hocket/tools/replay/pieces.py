"""Pieces of pushes that switches sum, as frames between a host and its rack's switch. `crates/switch/src/piece.rs` has their form.

A worker sends a piece once the messages that it waits for say so; one of them says that the slot of an earlier piece is free. A
piece is sent again when news of pieces behind it have come and none of it, or when nothing is heard of the oldest one for a while.
"""

from __future__ import annotations

import errno
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct

from hocket.errors import PeerError, UsageError
from hocket.tools.simulation.aggregation import Switch
from hocket.tools.testbed.switched import INTERFACE, mac

ETHERTYPE = 0x88B5
"""Ethernet's type for experiments on a local network (IEEE 802, "Local Experimental Ethertype 1")."""
PUSHED, SUM, FREE = range(3)
HEAD = struct.Struct("<BBHIIIQQ")
"""Header behind Ethernet's: kind, zero, the server's port, repetition, number, bytes of values, ports of all workers, of those in
it."""
SWITCH = bytes.fromhex("02686bff0000")
"""Address of all switches that sum."""
VALUES_BYTES_MAX = 1500 - HEAD.size
"""Limit of a piece: an Ethernet frame's payload."""
ITEM_BYTES = 4

SEND_BUFFER_BYTES = 1 << 17
"""Limit of bytes that wait in the host's own queue: beyond that of a link, the kernel would drop them."""
RECEIVE_BUFFER_BYTES = 1 << 26
"""Room for sums that come while this process does not run: a switch sends them once."""
SO_RCVBUFFORCE = 33
"""From <asm-generic/socket.h>."""
OVERTAKEN = 3
"""Pieces behind one of which nothing is heard, until it counts as lost."""
AGAIN_S = 0.05
"""Time until the oldest piece is sent again; others may still compute, so it doubles each time."""


class Piece(Struct, frozen=True, array_like=True):
    """One piece of all workers' pushes of a key. `first`: number of the key's first piece. Numbers of messages in the traffic: `sends`
    and `freed` by worker, `total` of the sum."""

    bytes: int
    server: int
    first: int
    sends: dict[int, int]
    freed: dict[int, int]
    total: int


def check_pieces(switch: Switch) -> None:
    """Raise UsageError if its pieces are no frames of f32 values, or it says what is lost."""
    slot_bytes = switch.slot_bytes
    if switch.loss:
        raise UsageError(
            f"a switch that loses {switch.loss:g} of its pieces: frames of a replay are lost where the cluster says so\n"
            "hint: `loss` of its hosts or `uplink_loss` of its racks; `hocket simulate trace --aggregate` takes a share"
        )
    if slot_bytes > VALUES_BYTES_MAX or slot_bytes % ITEM_BYTES:
        raise UsageError(
            f"pieces of {slot_bytes} bytes: a frame has up to {VALUES_BYTES_MAX}, of four bytes each\n"
            "hint: `hocket simulate trace --aggregate` predicts larger ones"
        )


class Pieces:
    """Pieces that a node sends and awaits. Close them after use."""

    def __init__(self, pieces: Sequence[Piece], rank: int, ports: Sequence[int]) -> None:
        """Open a socket for frames. `ports`: those of the switch, by node."""
        self._pieces, self._rank, self._ports = pieces, rank, ports
        self._numbers = {each.sends[rank]: number for number, each in enumerate(pieces) if rank in each.sends}
        self._run = -1
        self._waiting: deque[bytes] = deque()
        self._unheard: dict[int, float] = {}
        """When to send each piece again of which nothing is heard yet, in the order in which they were sent."""
        self._patience_s: dict[int, float] = {}
        self._came: set[int] = set()
        self._values: dict[int, bytes] = {}
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER_BYTES)
        self.socket.bind((INTERFACE, ETHERTYPE))
        self.socket.setblocking(False)

    def begin(self) -> None:
        """Begin a repetition."""
        self._run += 1
        self._came.clear()

    def is_piece(self, message: int) -> bool:
        """Return whether that message is a piece of this node's."""
        return message in self._numbers

    def send(self, message: int) -> None:
        """Send the piece of that message."""
        number = self._numbers[message]
        self._patience_s[number] = AGAIN_S
        self._put(number)
        self._write()

    @property
    def idle(self) -> bool:
        """Return whether this node's pieces have all been summed."""
        return not self._unheard

    @property
    def events(self) -> int:
        """Return what to wait for at the socket."""
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._waiting else 0)

    @property
    def due_s(self) -> float | None:
        """Return when a piece is to be sent again, if nothing is heard."""
        return next(iter(self._unheard.values()), None)

    def ready(self) -> list[int]:
        """Read and write what the socket allows, and send again what is due; return the messages that arrived."""
        found: list[int] = []
        while True:
            try:
                frame = self.socket.recv(2048)
            except BlockingIOError:
                break
            found += self._take(frame[14:])
        oldest = next(iter(self._unheard), None)
        if oldest is not None and time.perf_counter() > self._unheard[oldest]:
            self._again(oldest)
        self._write()
        return found

    def close(self) -> None:
        self.socket.close()

    def _take(self, frame: bytes) -> Iterable[int]:
        kind, _, _, run, number, count, _, ports = HEAD.unpack_from(frame)
        if run != self._run or kind not in (SUM, FREE):
            return
        piece = self._pieces[number]
        if kind == FREE:
            if self._unheard.pop(number, None) is not None:
                yield piece.freed[self._rank]
                self._overtaken(number)
            return
        if number in self._came:
            raise PeerError(f"the switch has sent the sum of piece {number} twice")
        values = np.frombuffer(frame, "<f4", count // ITEM_BYTES, HEAD.size)
        whole = sum(map(_value, piece.sends))
        if ports != self._mask(piece) or count < piece.bytes or not (values == whole).all():
            raise PeerError(f"the switch's sum of piece {number} is not that of all workers")
        self._came.add(number)
        yield piece.total

    def _overtaken(self, number: int) -> None:
        """Send again what was sent well before this piece of the same key, once: workers send keys in orders of their own."""
        first = self._pieces[number].first
        for lost in [each for each in self._unheard if first <= each < number - OVERTAKEN]:
            if self._patience_s[lost] == AGAIN_S:
                self._again(lost)

    def _again(self, number: int) -> None:
        self._patience_s[number] *= 2
        self._put(number, first=True)

    def _mask(self, piece: Piece) -> int:
        """Return the ports of all workers of a piece, a bit each."""
        return sum(1 << self._ports[worker] for worker in piece.sends)

    def _put(self, number: int, *, first: bool = False) -> None:
        """Queue a piece; one that is sent again keeps its place among those of which nothing is heard."""
        piece = self._pieces[number]
        self._unheard[number] = time.perf_counter() + self._patience_s[number]
        size = -(-piece.bytes // ITEM_BYTES) * ITEM_BYTES
        own = self._ports[self._rank]
        head = HEAD.pack(
            PUSHED,
            0,
            self._ports[piece.server],
            self._run,
            number,
            size,
            self._mask(piece),
            1 << own,
        )
        if size not in self._values:
            self._values[size] = np.full(size // ITEM_BYTES, _value(self._rank), "<f4").tobytes()
        frame = SWITCH + mac(own) + ETHERTYPE.to_bytes(2, "big") + head + self._values[size]
        if first:
            self._waiting.appendleft(frame)
        else:
            self._waiting.append(frame)

    def _write(self) -> None:
        while self._waiting:
            try:
                self.socket.send(self._waiting[0])
            except BlockingIOError:
                return
            except OSError as error:
                # The host's own queue is full: the piece is sent again, as one that is lost anywhere.
                if error.errno != errno.ENOBUFS:
                    raise PeerError(
                        f"node {self._rank} cannot send to its switch: {error.strerror}"
                    ) from None
            self._waiting.popleft()


def _value(worker: int) -> float:
    """Return what all values of a worker are: small integers, whose sums are exact."""
    return float(worker + 1)
