"""Strangers at the wire's door: turned away with a line in the log, while the job goes on."""

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path

import numpy as np
import pytest

from hocket import PeerError, RendezvousError, _native
from hocket.artefacts.plan import AllReduce
from hocket.planning.compile import all_reduce_program
from tests.hostile.cables import exchange

TIMEOUT_S = 20.0
GARBAGE = [b"", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 100, b"HOCKET\x00\x01" + b"\xff" * 40, os.urandom(5000)]


def engines(secrets=(b"s", b"s"), timeout_s=TIMEOUT_S, **options):
    job = uuid.uuid4().hex
    made = [
        _native.Engine(
            rank=rank, world=2, job=job, secret=secret, host=f"h{rank}", bind=["127.0.0.1"], **options
        )
        for rank, secret in enumerate(secrets)
    ]
    peers = [(engine.addresses, f"h{rank}") for rank, engine in enumerate(made)]
    errors = on_each(made, lambda engine, _: engine.connect(peers, timeout_s))
    return made, errors


def on_each(made, work, timeout_s=TIMEOUT_S):
    errors = []

    def guarded(engine, rank):
        try:
            work(engine, rank)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=each[::-1]) for each in enumerate(made)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout_s)
    assert not any(thread.is_alive() for thread in threads)
    return errors


@pytest.mark.parametrize("garbage", GARBAGE, ids=["nothing", "http", "zeros", "almost", "noise"])
def test_garbage_at_the_door_does_not_disturb(garbage, capfd):
    """A port scanner would stop a training job."""
    made, errors = engines()
    assert not errors
    program = all_reduce_program(
        world=2, elements=100, dtype="f32", op="sum", scale=1.0, route=AllReduce(algorithm="ring")
    )
    host, _, port = made[0].addresses[0].rpartition(":")

    def train(engine, rank):
        memory = engine.allocate(400)
        values = np.frombuffer(memory, np.float32)
        number = engine.load(program, {0: (memory, 0)}, priority=0, label="x")
        for _ in range(20):
            values[:] = rank + 1
            if rank == 0:
                with socket.create_connection((host, int(port)), TIMEOUT_S) as stranger:
                    stranger.sendall(garbage)
            engine.launch(number)
            engine.wait(number, TIMEOUT_S)
            assert (values == 3).all()

    assert on_each(made, train) == []
    deadline_s = time.monotonic() + TIMEOUT_S
    logged = ""
    while "turned away a connection from 127.0.0.1" not in logged and time.monotonic() < deadline_s:
        logged += capfd.readouterr().err
        time.sleep(0.05)
    assert "turned away a connection from 127.0.0.1" in logged
    on_each(made, lambda engine, _: engine.close())


def test_another_secret_is_refused_by_both_sides():
    """A second job on a reused port would exchange gradients with ours."""
    made, errors = engines(secrets=(b"ours", b"theirs"), timeout_s=1.0)
    assert len(errors) == 2
    assert all(isinstance(error, RendezvousError) for error in errors)
    assert any("secret" in str(error) for error in errors)
    on_each(made, lambda engine, _: engine.close())


def test_a_rank_that_gives_up_is_quoted():
    """The others would only see a closed connection."""
    made, errors = engines()
    assert not errors
    program = all_reduce_program(
        world=2, elements=4, dtype="f32", op="sum", scale=1.0, route=AllReduce(algorithm="ring")
    )
    memory = made[1].allocate(16)
    number = made[1].load(program, {0: (memory, 0)}, priority=0, label="x")
    made[1].launch(number)
    made[0].abort("the disk is full")
    with pytest.raises(PeerError, match="gave up: the disk is full") as told:
        made[1].wait(number, TIMEOUT_S)
    assert (told.value.rank, told.value.host, told.value.why) == (0, "h0", "gave_up")
    on_each(made, lambda engine, _: engine.close())


def hammer(address, recorded, stop, calls):
    """Calls the door as fast as it can until told to stop, in every way that a stranger might."""
    host, _, port = address.rpartition(":")
    held = []
    ways = [b"", os.urandom(5000), recorded, recorded[:60], b"\x16\x03\x01\x02\x00" + os.urandom(512), None]
    while not stop.is_set():
        for way in ways:
            with contextlib.suppress(OSError):
                stranger = socket.create_connection((host, int(port)), TIMEOUT_S)
                calls.append(way)
                if way is None:
                    # Half open: says nothing and stays.
                    held.append(stranger)
                    if len(held) > 100:
                        held.pop(0).close()
                    continue
                with stranger:
                    # Closing will reset the connection in mid-handshake.
                    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    stranger.sendall(way)
    for stranger in held:
        stranger.close()


def training(enough, steps):
    """What a rank does until one of them has seen `enough`: all-reduces whose sums it checks, at most so many steps."""
    program = all_reduce_program(
        world=2,
        elements=50_000,
        dtype="f32",
        op="sum",
        scale=1.0,
        route=AllReduce(algorithm="ring"),
    )

    def train(engine, rank):
        memory = engine.allocate(200_000)
        values = np.frombuffer(memory, np.float32)
        number = engine.load(program, {0: (memory, 0)}, priority=0, label="x")
        for step in range(steps):
            values[:] = rank + step % 100
            engine.launch(number)
            engine.wait(number, TIMEOUT_S)
            assert (values == 1 + 2 * (step % 100)).all()
            # Both ranks leave together: the sum says whether either has seen enough.
            values[:] = float(enough())
            engine.launch(number)
            engine.wait(number, TIMEOUT_S)
            if values[0] > 0:
                return
        raise AssertionError(f"not enough after {steps} steps")

    return train


@pytest.mark.parametrize("tls", [False, True])
def test_a_job_goes_on_while_strangers_hammer_at_its_door(tls, capfd):
    """Anybody who reaches a port could stall a job, end it, take part in it or fill the disk with its log."""
    outcomes, recorded = exchange(None, tls=tls)
    assert all((sums == 3).all() for sums in outcomes)
    made, errors = engines(tls=tls)
    assert not errors
    stop, calls = threading.Event(), []
    strangers = [
        threading.Thread(target=hammer, args=(engine.addresses[0], recorded[:400], stop, calls))
        for engine in made
    ]
    for stranger in strangers:
        stranger.start()

    try:
        assert on_each(made, training(lambda: len(calls) >= 2000, 100_000), 3 * TIMEOUT_S) == []
    finally:
        stop.set()
        for stranger in strangers:
            stranger.join(TIMEOUT_S)
        on_each(made, lambda engine, _: engine.close())
    assert len(calls) >= 2000
    lines = [line for line in capfd.readouterr().err.splitlines() if "turned away" in line]
    assert 0 < len(lines) < len(calls) / 4


FLOOD = """
import socket, struct, sys, time

host, port, wanted = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
reset, made = struct.pack("ii", 1, 0), 0
began_s = time.monotonic()
while made < wanted:
    stranger = socket.socket()
    stranger.setblocking(False)
    stranger.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
    stranger.connect_ex((host, port))
    stranger.close()
    made += 1
print(made, made / (time.monotonic() - began_s), flush=True)
"""
CONNECTS = 10_000


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


def test_ten_thousand_connects_a_second_do_not_disturb():
    """One machine that is broken or means ill would end everybody's training, without even knowing how to speak to a rank."""
    made, errors = engines()
    assert not errors
    host, _, port = made[0].addresses[0].rpartition(":")
    # As fast as a process of its own can, again and again, until the job has seen enough.
    stranger = subprocess.Popen(
        [sys.executable, "-c", FLOOD, host, port, str(CONNECTS)], stdout=subprocess.PIPE, text=True
    )

    descriptors = open_descriptors()
    try:
        assert on_each(made, training(lambda: stranger.poll() is not None, 100_000), 3 * TIMEOUT_S) == []
        attempts, per_s = stranger.communicate(timeout=TIMEOUT_S)[0].split()
    finally:
        stranger.kill()
        stranger.wait()
        on_each(made, lambda engine, _: engine.close())
    assert int(attempts) == CONNECTS
    # Shown with -s: what this machine was asked for.
    sys.stderr.write(f"{float(per_s):,.0f} connects a second\n")
    assert open_descriptors() <= descriptors, "strangers' connections are kept"
