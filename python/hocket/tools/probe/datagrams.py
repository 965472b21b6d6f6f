"""Round trips of UDP datagrams between hosts of a probe, and lost or reordered datagrams.

A datagram carries the job's token, the round of the probe and a number, 32 bits each, so that an answer is matched to
its question whenever it arrives, and a stranger's is dropped. One question is in flight at a time, and the pace limits
their rate.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass

from hocket.tools.probe.pace import Pace, on_the_wire
from hocket.tools.probe.quantile import Quantile

QUESTIONS_MAX = 200_000
"""Limit on questions per pair, however much they vary: their times are kept and repeatedly sorted."""

ANSWER_S = 0.05
"""Longest wait for an answer: a round trip through half a continent. Later answers count as lost."""

BLOCKED = 5
"""Unanswered questions after which datagrams are assumed not to pass between two hosts."""

TOKEN_BYTES = 16
_FORM = struct.Struct(f"!4s{TOKEN_BYTES}sII")
QUESTION_BYTES = on_the_wire(_FORM.size)
_ASK, _ANSWER = b"hkt?", b"hkt!"
NUMBERS = 1 << 32


@dataclass(frozen=True)
class Trips:
    """The result of one pair's datagrams: the low quantile of round trips, and the numbers of datagrams sent, lost, and reordered.

    `precision`: the relative uncertainty of the quantile (95 %); 1: unknown.
    """

    round_trip_s: float
    sent: int
    lost: int
    reordered: int
    precision: float


def listen(family: int, address: str, port: int) -> socket.socket:
    """A datagram socket of this host at a port; OSError when the port is taken."""
    link = socket.socket(family, socket.SOCK_DGRAM)
    try:
        link.bind((address, port))
    except OSError:
        link.close()
        raise
    return link


def ask(
    link: socket.socket, to: tuple[str, int], token: bytes, turn: int, *, duration_s: float, pace: Pace
) -> Trips | None:
    """Round trips to a host until their quantile is known, QUESTIONS_MAX are reached, or `duration_s` has passed.

    None when no answer arrives at all: something between the hosts blocks datagrams.
    """
    quantile = Quantile()
    sent = lost = reordered = 0
    end = time.perf_counter() + duration_s
    while sent < QUESTIONS_MAX and not quantile.known and (time.perf_counter() < end or quantile.count == 0):
        if lost == sent == BLOCKED:
            return None
        number = sent % NUMBERS
        sent += 1
        pace.spend(QUESTION_BYTES)
        start = time.perf_counter()
        link.sendto(_FORM.pack(_ASK, token, turn % NUMBERS, number), to)
        answered, late = _answer(link, token, turn % NUMBERS, number, start + ANSWER_S)
        # A late answer had been counted as lost.
        reordered += late
        lost -= late
        if answered:
            quantile.add(time.perf_counter() - start)
        else:
            lost += 1
    return Trips(quantile.value, sent, lost, reordered, quantile.precision)


def answer(link: socket.socket, token: bytes, turn: int, done: threading.Event) -> None:
    """Answer the questions of one round until `done`."""
    link.settimeout(ANSWER_S)
    head = _ASK + token + (turn % NUMBERS).to_bytes(4)
    while not done.is_set():
        try:
            question, sender = link.recvfrom(_FORM.size + 1)
        except TimeoutError:
            continue
        except OSError:
            return
        if len(question) == _FORM.size and question.startswith(head):
            with suppress(OSError):  # the host that asked counts it as lost
                link.sendto(_ANSWER + question[len(_ASK) :], sender)


def _answer(link: socket.socket, token: bytes, turn: int, number: int, deadline: float) -> tuple[bool, int]:
    """Return whether the answer arrived, and how many late answers to earlier questions came before it."""
    late = 0
    while (left := deadline - time.perf_counter()) > 0:
        link.settimeout(left)
        try:
            data = link.recv(_FORM.size + 1)
        except TimeoutError:
            break
        except ConnectionRefusedError:
            continue  # an earlier datagram found no listener; the deadline still counts
        if len(data) != _FORM.size:
            continue
        kind, theirs, its_turn, its_number = _FORM.unpack(data)
        if (kind, theirs, its_turn) != (_ANSWER, token, turn):
            continue
        if its_number == number:
            return True, late
        late += its_number < number
    return False, late
