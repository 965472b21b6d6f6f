"""Payloads on a fabric of libfabric: large messages, a rank that dies, settings that exclude each other."""

import subprocess
import sys
import threading
import uuid
from pathlib import Path

import numpy as np
import pytest

from hocket import Error, UsageError, _native, reference
from hocket.artefacts.plan import AllReduce, Bucket
from hocket.planning.buckets import plan_of
from hocket.planning.compile import bucket_program
from tests.support.engines import FABRICS, Job

pytestmark = pytest.mark.devices

RANK = Path(__file__).with_name("rank_process.py")
DEADLINE_S = 60.0


@pytest.mark.parametrize("codec", ["none", "f16"])
@pytest.mark.parametrize("algorithm", ["ring", "direct"])
@pytest.mark.parametrize("fabric", FABRICS)
def test_large_buckets_are_the_same_bits(fabric, algorithm, codec):
    """Pieces would land elsewhere, twice, or unconverted: messages of many of them, straight into their place or reduced."""
    elements, world = 1_000_003, 3
    pairs = tuple((a, b) for a in range(world) for b in range(world) if a != b)
    bucket = Bucket(
        parts=(),
        elements=elements,
        dtype="f32",
        route=AllReduce(algorithm=algorithm),
        order=(2, 0, 1),
        priority=0,
        codec=codec,
        codec_links=pairs if codec != "none" else (),
        chunk_bytes=1 << 22,
    )
    program = bucket_program(0, plan_of([bucket], world, label=""))
    inputs = np.random.default_rng(3).standard_normal((world, elements)).astype(np.float32)
    expected, found = ([[row.copy()] for row in inputs] for _ in range(2))
    reference.run(program, expected)
    with Job(["a", "b", "c"], fabric) as job:
        for _ in range(3):
            found = [[row.copy()] for row in inputs]
            job.run(program, found)
            for rank in range(world):
                assert np.array_equal(expected[rank][0].view(np.uint32), found[rank][0].view(np.uint32))


@pytest.mark.parametrize("fabric", FABRICS)
def test_a_rank_that_is_killed_is_named(fabric):
    """A fabric tells nobody of a dead peer: the others would wait for its bytes."""
    hosts, job = "a,b,c", uuid.uuid4().hex
    ranks = [
        subprocess.Popen(
            [sys.executable, RANK, str(rank), job, "secret", hosts, "100000", "2000000", fabric],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        addresses = " ".join(each.stdout.readline().strip() for each in ranks)
        for each in ranks:
            each.stdin.write(addresses + "\n")
            each.stdin.flush()
        for each in ranks:
            assert [each.stdout.readline() for _ in range(3)] == [f"step {step}\n" for step in range(3)]
        ranks[1].kill()
        for rank in (0, 2):
            said = ranks[rank].communicate(timeout=DEADLINE_S)[1]
            assert "PeerError: rank 1 on b" in said, said
    finally:
        for each in ranks:
            each.kill()
            each.communicate()


def engine(**settings):
    return _native.Engine(
        rank=0, world=2, job=uuid.uuid4().hex, secret=b"s", host="a", bind=["127.0.0.1"], **settings
    )


def test_what_cannot_be_is_refused():
    """Gradients would cross a network in the clear that a user wanted encrypted, or over something else than asked for."""
    with pytest.raises(UsageError, match="HOCKET_TLS and a fabric exclude each other"):
        engine(wire="fabric:tcp", tls=True)
    with pytest.raises(UsageError, match="`infiniband` is no fabric; there are efa, tcp, udp, shm and auto"):
        engine(wire="fabric:infiniband")
    with pytest.raises(UsageError, match="`roce` is no transport; there are shm, fabric, tcp"):
        engine(wire="roce")
    with pytest.raises(
        Error, match=r"rank 0: host a cannot use the fabric of HOCKET_WIRE: .* no provider efa"
    ):
        engine(wire="fabric:efa")


def test_a_rank_without_the_fabric_is_noticed():
    """It would send gradients over TCP to a rank that expects them elsewhere."""
    name = uuid.uuid4().hex
    engines = [
        _native.Engine(rank=rank, world=2, job=name, secret=b"s", host=host, bind=["127.0.0.1"], wire=wire)
        for rank, (host, wire) in enumerate([("a", "fabric:tcp"), ("b", "tcp")])
    ]
    peers = [(each.addresses, host) for each, host in zip(engines, "ab", strict=True)]
    errors = {}

    def connect(rank):
        try:
            engines[rank].connect(peers, 10.0)
        except Exception as error:
            errors[rank] = str(error)

    threads = [threading.Thread(target=connect, args=(rank,)) for rank in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for each in engines:
        each.close()
    assert "HOCKET_WIRE must be the same on all ranks" in errors[0], errors
