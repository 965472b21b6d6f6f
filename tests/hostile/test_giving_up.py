"""Ranks that give up before all are connected, and strangers who only hold their place: who waits learns why, or gets in."""

import contextlib
import socket
import threading
import uuid

import pytest

from hocket import PeerError, RendezvousError, _native
from hocket.artefacts.plan import AllReduce
from hocket.planning.compile import all_reduce_program

pytestmark = pytest.mark.members

TIMEOUT_S = 20.0
SHORT_S = 3.0
HOLDERS = 100
"""More than a door hears at a time."""


def engine(rank, world, job, host, **options):
    return _native.Engine(
        rank=rank, world=world, job=job, secret=b"s", host=host, bind=["127.0.0.1"], **options
    )


@pytest.mark.parametrize(
    "options", [{}, {"checksum": True}, {"tls": True}, {"tls": True, "checksum": True}], ids=str
)
@pytest.mark.parametrize("hosts", [["a", "b", "c"], ["a", "a", "c"]], ids=["three hosts", "two hosts"])
def test_a_rank_that_gives_up_tells_who_is_connected_already(hosts, options):
    """Rank 0 would only say that rank 1 closed its connection; why is known to rank 1 alone."""
    job = uuid.uuid4().hex
    made = [engine(rank, 3, job, host, **options) for rank, host in enumerate(hosts)]
    peers = [(each.addresses, host) for each, host in zip(made, hosts, strict=True)]
    zero = threading.Thread(target=made[0].connect, args=(peers, TIMEOUT_S))
    zero.start()
    # Rank 1 finds rank 0 and waits in vain for rank 2, which then finds rank 0 and not rank 1.
    with pytest.raises(RendezvousError) as late:
        made[1].connect(peers, 0.5)
    assert (late.value.rank, late.value.host, late.value.missing) == (2, "c", (2,))
    made[1].close()
    with pytest.raises(RendezvousError) as later:
        made[2].connect(peers, 0.5)
    assert later.value.missing == (1,)
    zero.join(TIMEOUT_S)
    program = all_reduce_program(
        world=3, elements=4, dtype="f32", op="sum", scale=1.0, route=AllReduce(algorithm="ring")
    )
    memory = made[0].allocate(16)
    with pytest.raises(PeerError, match=r"gave up: not connected after .*rank 2 on c") as told:
        number = made[0].load(program, {0: (memory, 0)}, priority=0, label="x")
        made[0].launch(number)
        made[0].wait(number, TIMEOUT_S)
    assert (told.value.rank, told.value.host, told.value.why) == (1, hosts[1], "gave_up")
    for each in made:
        each.close()


def test_only_who_was_called_in_vain_is_missing():
    """A rank that hangs would be one of many that are blamed, and a job of ranks that come and go would go on without another."""
    job = uuid.uuid4().hex
    made = [engine(rank, 3, job, "abc"[rank]) for rank in range(3)]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        peers = [(each.addresses, "abc"[rank]) for rank, each in enumerate(made)]
        peers[0] = ([f"127.0.0.1:{silent.getsockname()[1]}"], "a")
        with pytest.raises(RendezvousError) as found:
            made[2].connect(peers, 0.5)
    assert found.value.missing == (0,)
    for each in made:
        each.close()


@pytest.mark.parametrize("options", [{}, {"checksum": True}, {"tls": True}], ids=str)
def test_a_connection_that_nobody_awaits_is_turned_away_with_a_reason(options):
    """Ranks with another number of connections would wait for the heartbeat's whole time, and blame a silent network."""
    job = uuid.uuid4().hex
    made = [engine(rank, 2, job, f"h{rank}", **options) for rank in range(2)]
    peers = [(each.addresses, f"h{rank}") for rank, each in enumerate(made)]
    missed = []

    def connect():
        try:
            # The other one's calls are none that this one awaits.
            made[0].connect(peers, SHORT_S, [1, 1])
        except RendezvousError as error:
            missed.append(error.missing)

    zero = threading.Thread(target=connect)
    zero.start()
    made[1].connect(peers, TIMEOUT_S, [2, 2])
    zero.join(TIMEOUT_S)
    assert missed == [(1,)]
    program = all_reduce_program(
        world=2, elements=4, dtype="f32", op="sum", scale=1.0, route=AllReduce(algorithm="ring")
    )
    memory = made[1].allocate(16)
    with pytest.raises(PeerError, match="HOCKET_STREAMS") as refused:
        number = made[1].load(program, {0: (memory, 0)}, priority=0, label="x")
        made[1].launch(number)
        made[1].wait(number, TIMEOUT_S)
    assert (refused.value.rank, refused.value.host, refused.value.why) == (0, "h0", "refused")
    for each in made:
        # The job has failed, which closing may say again.
        with contextlib.suppress(PeerError):
            each.close()


@pytest.mark.parametrize("tls", [False, True], ids=["plain", "TLS"])
def test_strangers_who_hold_their_place_do_not_keep_ranks_out(tls):
    """Anybody could keep a job from starting by a few connections that say nothing."""
    job = uuid.uuid4().hex
    made = [engine(rank, 2, job, f"h{rank}", tls=tls) for rank in range(2)]
    host, _, port = made[0].addresses[0].rpartition(":")
    peers = [(each.addresses, f"h{rank}") for rank, each in enumerate(made)]
    with contextlib.ExitStack() as held:
        for _ in range(HOLDERS):
            held.enter_context(socket.create_connection((host, int(port)), TIMEOUT_S))
        errors = []

        def connect(rank):
            try:
                # Less than strangers may take to prove the secret.
                made[rank].connect(peers, 3.0)
            except RendezvousError as error:
                errors.append(error)

        threads = [threading.Thread(target=connect, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT_S)
    for each in made:
        each.close()
    assert errors == []
