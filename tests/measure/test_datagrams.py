"""Round trips of datagrams: losses, late answers, strangers, and when enough is known."""

from __future__ import annotations

import math
import random
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from hocket.tools.probe import datagrams, quantile
from hocket.tools.probe.datagrams import BLOCKED, TOKEN_BYTES, answer, ask, listen
from hocket.tools.probe.network import _losses
from hocket.tools.probe.pace import Pace
from hocket.tools.probe.quantile import PRECISION, Quantile

pytestmark = pytest.mark.hosts

TOKEN = bytes(range(TOKEN_BYTES))


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost answers are given up soon."""
    monkeypatch.setattr(datagrams, "ANSWER_S", 0.02)


@contextmanager
def answering(part: Callable[[socket.socket, threading.Event], None]) -> Iterator[tuple[str, int]]:
    """A thread that answers at an address."""
    done = threading.Event()
    link = listen(socket.AF_INET, "127.0.0.2", 0)
    link.settimeout(0.05)
    thread = threading.Thread(target=part, args=(link, done))
    thread.start()
    try:
        yield link.getsockname()
    finally:
        done.set()
        thread.join()
        link.close()


@pytest.fixture
def link() -> Iterator[socket.socket]:
    with listen(socket.AF_INET, "127.0.0.1", 0) as own:
        yield own


def honest(link: socket.socket, done: threading.Event) -> None:
    answer(link, TOKEN, 7, done)


@pytest.mark.timing
def test_nothing_is_lost_where_nothing_is_lost(link: socket.socket) -> None:
    """Broken: a healthy network would be reported as a bad one, or latency would not be found."""
    with answering(honest) as address:
        trips = ask(link, address, TOKEN, 7, duration_s=0.2, pace=Pace(1e9))
    assert trips is not None
    assert trips.lost == trips.reordered == 0
    assert 0 < trips.round_trip_s < 0.02


def lossy(link: socket.socket, done: threading.Event) -> None:
    count = 0
    while not done.is_set():
        try:
            question, sender = link.recvfrom(100)
        except TimeoutError:
            continue
        count += 1
        if count % 3:
            link.sendto(b"hkt!" + question[4:], sender)


@pytest.mark.timing
def test_losses_are_counted_and_do_not_count_as_round_trips(link: socket.socket) -> None:
    """Broken: a link that loses packets would look slow, or perfect."""
    with answering(lossy) as address:
        trips = ask(link, address, TOKEN, 7, duration_s=0.3, pace=Pace(1e9))
    assert trips is not None
    assert trips.lost == trips.sent // 3
    assert trips.round_trip_s < 0.02


def swapping(link: socket.socket, done: threading.Event) -> None:
    """Answers the fourth question when the fifth has come."""
    kept: list[tuple[bytes, tuple[str, int]]] = []
    count = 0
    while not done.is_set():
        try:
            question, sender = link.recvfrom(100)
        except TimeoutError:
            continue
        count += 1
        if count == 4:
            kept.append((question, sender))
            continue
        for late, whose in kept:
            link.sendto(b"hkt!" + late[4:], whose)
        kept.clear()
        link.sendto(b"hkt!" + question[4:], sender)


def test_answers_that_come_late_are_not_lost(link: socket.socket) -> None:
    """Broken: reordering would look like loss, or a late answer like a fast one."""
    with answering(swapping) as address:
        trips = ask(link, address, TOKEN, 7, duration_s=0.1, pace=Pace(1e9))
    assert trips is not None
    assert (trips.lost, trips.reordered) == (0, 1)


def babbling(link: socket.socket, done: threading.Event) -> None:
    """Everything but an answer: noise, other rounds, other jobs."""
    while not done.is_set():
        try:
            question, sender = link.recvfrom(100)
        except TimeoutError:
            continue
        wrong_turn = b"hkt!" + question[4:20] + (8).to_bytes(4) + question[24:]
        wrong_job = b"hkt!" + bytes(TOKEN_BYTES) + question[20:]
        for noise in (
            b"",
            b"x" * 28,
            b"hkt!",
            question,
            wrong_turn,
            wrong_job,
            b"hkt!" + question[4:] + b"more",
        ):
            link.sendto(noise, sender)


def test_what_is_no_answer_is_not_taken_for_one(link: socket.socket) -> None:
    """Broken: strangers, or datagrams of an earlier round, could decide the order of ranks."""
    with answering(babbling) as address:
        assert ask(link, address, TOKEN, 7, duration_s=0.2, pace=Pace(1e9)) is None


def test_blocked_datagrams_are_noticed_soon(link: socket.socket) -> None:
    """Broken: behind a firewall a probe would wait for each of ten thousand answers."""
    with answering(lambda _link, _done: None) as address:
        assert ask(link, address, TOKEN, 7, duration_s=10.0, pace=Pace(1e9)) is None
    assert BLOCKED < 10


def test_questions_of_strangers_get_no_answer(link: socket.socket) -> None:
    """Broken: a probe's port would answer anybody, and could be used to flood others."""
    with answering(honest) as address:
        assert ask(link, address, bytes(TOKEN_BYTES), 7, duration_s=0.2, pace=Pace(1e9)) is None
        assert ask(link, address, TOKEN, 8, duration_s=0.2, pace=Pace(1e9)) is None


def test_a_quantile_is_known_when_it_is() -> None:
    """Broken: a probe would stop too early, or never."""
    noise = random.Random(1)  # noqa: S311  # no secret
    quiet, loud = Quantile(), Quantile()
    for _ in range(640):
        quiet.add(100 + noise.random())
        loud.add(noise.expovariate(1))
    assert quiet.known
    assert not loud.known
    assert quiet.value == pytest.approx(100.1, abs=0.05)
    assert quiet.precision <= PRECISION < loud.precision


def test_the_precision_that_is_told_holds() -> None:
    """Broken: ±7 % would be said of a latency that is wrong by more, more often than once in twenty."""
    outside = 0
    for seed in range(200):
        noise = random.Random(seed)  # noqa: S311  # no secret
        times = Quantile()
        for _ in range(400):
            times.add(1 + noise.expovariate(1))
        true = 1 - math.log(0.9)
        outside += abs(times.value - true) > times.precision * times.value
    assert outside <= 20


def test_a_pair_is_asked_until_its_time_is_over_and_no_longer_than_needed(
    link: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Broken: a pair would be given up before its budget, or asked on when its latency is known."""
    with answering(honest) as address:
        monkeypatch.setattr(quantile, "PRECISION", 1.0)
        soon = ask(link, address, TOKEN, 7, duration_s=60.0, pace=Pace(1e9))
        monkeypatch.setattr(quantile, "PRECISION", 0.0)
        never = ask(link, address, TOKEN, 7, duration_s=0.05, pace=Pace(1e9))
    assert soon is not None
    assert never is not None
    assert soon.sent == quantile.LEAST
    assert never.precision > 0


def test_losses_become_a_sentence() -> None:
    """Broken: a bad cable would be measured and not mentioned."""
    trips = {(0, 1): datagrams.Trips(1e-4, 100, 0, 0, 0.01), (0, 2): datagrams.Trips(1e-4, 200, 5, 1, 0.01)}
    said = _losses(trips, ["a", "b", "c"])
    assert (
        said == "of 300 datagrams 5 were lost and 1 came out of order; most between a and c: 5 and 1 of 200"
    )
    assert _losses({(0, 1): trips[0, 1]}, ["a", "b"]) == ""
