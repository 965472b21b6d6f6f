"""A bit that flips between two hosts: found, and said where."""

import threading
import uuid

import pytest

from hocket import PeerError, _native
from hocket.artefacts.plan import AllReduce
from hocket.planning.compile import all_reduce_program
from hocket.settings import Settings
from tests.hostile.cables import TIMEOUT_S, exchange
from tests.support import ranks

HANDSHAKE_BYTES = 56 + 32
"""What a caller sends before its first frame."""


def test_damage_is_found_and_located():
    """A faulty cable or card would train a wrong model, or leave the user to guess which of many hosts it is in."""
    errors, _ = exchange(300_000, checksum=True)
    assert all(isinstance(error, PeerError) for error in errors), errors
    for error in errors:
        assert (error.rank, error.host, error.why) == (1, "h1", "damaged")
        # Which link, and which bytes of what: for the person who looks for the cable.
        assert "rank 1 on h1 → rank 0 on h0" in str(error)
        assert "bytes 0..200000 of `bucket 3` op " in str(error)
    # The rank that noticed knows where; the other was told.
    assert (errors[0].program, errors[0].launch) == (0, 0)
    assert errors[0].op is not None
    assert errors[1].program is None


@pytest.mark.parametrize("at", [0, 1, 8, 24, 26, 29])
def test_a_damaged_header_is_told_at_once(at):
    """Kind, flags, launch, length, sum: a rank would wait for bytes that nobody sends, or blame the protocol of its peer."""
    errors, _ = exchange(HANDSHAKE_BYTES + at, checksum=True)
    assert [(error.rank, error.why) for error in errors] == [(1, "damaged")] * 2, errors
    assert all("rank 1 on h1 → rank 0 on h0" in str(error) for error in errors), errors


def test_a_job_is_checked_unless_it_asks_not_to_be(tmp_path):
    """A switch or card that changes a bit and mends TCP's own checksum would train a wrong model in every job by default."""
    # The bits are those of gradients of the first step and of a later one.
    for at in (200_000, 900_000):
        ended = ranks.run(
            "tests.hostile.damaged_rank:train",
            2,
            tmp_path,
            str(at),
            settings=Settings(timeout_s=30, start_timeout_s=30, autopilot=False),
        )
        assert ended.returned == [[1, "h1", "damaged"]] * 2, ended.output


def test_checksums_are_for_wires_that_have_none():
    """TLS would be paid twice, or a job would train unchecked."""
    assert Settings().checksums
    assert not Settings(checksum=False).checksums
    assert not Settings(tls=True).checksums
    assert not Settings(wire="fabric:tcp").checksums
    assert Settings(tls=True, checksum=True).checksums


def test_without_checksums_the_cable_would_lie():
    """The test above would pass with a cable that damages nothing."""
    outcomes, _ = exchange(300_000)
    assert any((sums != 3).any() for sums in outcomes)


def test_checksums_pass_what_is_whole():
    """The setting would stop jobs on healthy networks."""
    outcomes, _ = exchange(None, checksum=True)
    assert all((sums == 3).all() for sums in outcomes)


@pytest.mark.parametrize("own", [0, 1])
def test_checksums_on_one_side_only_are_refused(own):
    """A job would believe itself checked while one rank sends unchecked."""
    job = uuid.uuid4().hex
    made = [
        _native.Engine(
            rank=rank,
            world=2,
            job=job,
            secret=b"s",
            host=f"h{rank}",
            bind=["127.0.0.1"],
            checksum=rank == own,
        )
        for rank in range(2)
    ]
    peers = [(engine.addresses, f"h{rank}") for rank, engine in enumerate(made)]
    program = all_reduce_program(
        world=2, elements=8, dtype="f32", op="sum", scale=1.0, route=AllReduce(algorithm="ring")
    )
    errors = []

    def train(engine):
        try:
            engine.connect(peers, TIMEOUT_S)
            memory = engine.allocate(32)
            number = engine.load(program, {0: (memory, 0)}, priority=0, label="x")
            engine.launch(number)
            engine.wait(number, TIMEOUT_S)
        except PeerError as error:
            errors.append(error)

    threads = [threading.Thread(target=train, args=(engine,)) for engine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert all((error.rank, error.why) == (1 - own, "violation") for error in errors), errors
    assert any("HOCKET_CHECKSUM must be the same on all ranks" in str(error) for error in errors), errors
    for engine in made:
        engine.close()
