"""Capacity of the path between two hosts by packet trains: the spacing in which back-to-back datagrams arrive.

The narrowest link of the path spreads a train: the bytes of its later part, over the time that they take to arrive, are
that link's rate (packet-pair and train dispersion: Dovrolis, Ramanathan and Moore, "Packet-dispersion techniques and a
capacity-estimation methodology", 2004). Its first part is ignored, because a token bucket lets it pass. The median of
several trains counts, since one may meet other traffic. The kernel's receive timestamps are used. Where the kernel can,
it cuts datagrams from larger pieces itself, as a Python loop sends no more than about 2 Gbit/s.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median

from hocket.job.store import address as addresses
from hocket.tools.probe.pace import Pace, on_the_wire

SEGMENT_BYTES = 1400
"""Size that fits an Ethernet frame with the headers of a tunnel."""

SEGMENTS_A_PIECE = 16
PIECES_A_TRAIN = 25
"""Pieces of a train of 560 KB: four times the burst of a testbed's or small cloud machine's token bucket, 0.45 ms of 10 Gbit/s."""

TRAINS = 7
TRAINS_BYTES = TRAINS * on_the_wire(
    SEGMENT_BYTES * SEGMENTS_A_PIECE * PIECES_A_TRAIN, SEGMENTS_A_PIECE * PIECES_A_TRAIN
)
COUNTED_FROM = 0.5
"""Fraction of a train's bytes that is ignored, at its start."""

QUIET_S = 0.05
"""Silence after the last train was sent after which no more is expected."""

ROOM_BYTES = 4 << 20
TOKEN_BYTES = 16
_HEAD = struct.Struct(f"!4s{TOKEN_BYTES}sIII")
_MAGIC = b"hktt"
_UDP_SEGMENT, _UDP_GRO = 103, 104
"""Options from linux/udp.h: this Python has no names for them."""
_SO_TIMESTAMPNS = 35
_TIMESPEC = struct.Struct("@qq")
_READ_BYTES = 1 << 16


@dataclass
class Train:
    """Arrivals of one train: (nanoseconds, payload bytes), in order."""

    arrivals: list[tuple[int, int]] = field(default_factory=list)

    def bit_per_s(self) -> float | None:
        """Rate of the train's later part; None if too little arrived, or everything at once.

        >>> Train([(0, 1000), (0, 1000), (8000, 1000), (16000, 1000)]).bit_per_s()
        1000000000.0
        """
        ordered = sorted(self.arrivals)
        total = sum(count for _, count in ordered)
        came = 0
        for at, (start_ns, count) in enumerate(ordered):
            came += count
            if came >= total * COUNTED_FROM:
                later = ordered[at + 1 :]
                # Bytes that arrived at the same moment belong to the part before.
                counted = [each for each in later if each[0] > start_ns]
                if not counted:
                    return None
                return sum(size for _, size in counted) * 8e9 / (counted[-1][0] - start_ns)
        return None


def settle(trains: Sequence[Train]) -> float | None:
    """The median of the trains that give a rate; None when none does."""
    rates = [rate for each in trains if (rate := each.bit_per_s()) is not None]
    return median(rates) if rates else None


def send(own: tuple[str, int], to: tuple[str, int], token: bytes, turn: int, pace: Pace) -> None:
    """Send all trains of one pair, each when the limit allows, from an own socket, which may be set to segment.

    `own`: this host's address and number.
    """
    address, me = own
    with socket.socket(addresses.family(address), socket.SOCK_DGRAM) as link:
        link.bind((address, 0))
        link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, ROOM_BYTES)
        cuts = _set(link, socket.IPPROTO_UDP, _UDP_SEGMENT, SEGMENT_BYTES)
        for number in range(TRAINS):
            head = _HEAD.pack(_MAGIC, token, turn, me, number)
            segment = head + bytes(SEGMENT_BYTES - len(head))
            piece = segment * SEGMENTS_A_PIECE
            packets = SEGMENTS_A_PIECE * PIECES_A_TRAIN
            pace.spend(on_the_wire(packets * SEGMENT_BYTES, packets))
            for _ in range(PIECES_A_TRAIN):
                if cuts:
                    try:
                        link.sendto(piece, to)
                        continue
                    except OSError:
                        # An interface that cannot segment, or an MTU below the segment's.
                        cuts = False
                        link.setsockopt(socket.IPPROTO_UDP, _UDP_SEGMENT, 0)
                for _ in range(SEGMENTS_A_PIECE):
                    link.sendto(segment, to)


def receive(
    link: socket.socket, token: bytes, turn: int, sources: Sequence[int], sent: threading.Event
) -> Mapping[int, list[Train]]:
    """Trains of these hosts, until all were `sent` and nothing more arrives."""
    _set(link, socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    _set(link, socket.IPPROTO_UDP, _UDP_GRO, 1)
    with suppress(OSError):
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM_BYTES)
    link.settimeout(QUIET_S)
    found = {source: [Train() for _ in range(TRAINS)] for source in sources}
    try:
        while True:
            try:
                data, ancillary, _, _ = link.recvmsg(_READ_BYTES, 128)
            except TimeoutError:
                if sent.is_set():
                    return found
                continue
            except ConnectionRefusedError:
                continue  # an answer to an earlier step, for which nobody waits any more
            if len(data) < _HEAD.size:
                continue
            magic, theirs, its_turn, source, number = _HEAD.unpack_from(data)
            if (magic, theirs, its_turn) == (_MAGIC, token, turn) and source in found and number < TRAINS:
                stamp_ns = _stamp_ns(ancillary)
                if stamp_ns is not None:
                    found[source][number].arrivals.append((stamp_ns, len(data)))
    finally:
        _set(link, socket.IPPROTO_UDP, _UDP_GRO, 0)
        _set(link, socket.SOL_SOCKET, _SO_TIMESTAMPNS, 0)


def _set(link: socket.socket, level: int, option: int, value: int) -> bool:
    """Set an option, and return whether this kernel supports it."""
    try:
        link.setsockopt(level, option, value)
    except OSError:
        return False
    return True


def _stamp_ns(ancillary: Sequence[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS and len(data) >= _TIMESPEC.size:
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return int(seconds) * 1_000_000_000 + int(nanoseconds)
    return None
