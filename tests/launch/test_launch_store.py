"""The store over real sockets: strangers, silence, taken and unreachable addresses, what closing leaves."""

import contextlib
import logging
import os
import random
import select
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hocket import _native
from hocket.errors import RendezvousError
from hocket.job.store import server as servers
from hocket.job.store import store as stores
from hocket.job.store.channel import Channel
from hocket.job.store.frames import encode
from hocket.job.store.handshake import CHALLENGE_BYTES, PROOF_BYTES, Connector
from hocket.job.store.server import Server
from hocket.job.store.store import Store

SECRET = b"0123456789abcdef"


@pytest.fixture
def server():
    with Server(["127.0.0.1"], 0, SECRET) as server:
        yield server


@pytest.fixture
def connect():
    """Connects ranks; they leave when the test ends."""
    with contextlib.ExitStack() as stack:

        def connect_rank(port, rank=0, *, secret=SECRET, patience_s=None):
            who = f"rank {rank} on h"
            store = Store(f"127.0.0.1:{port}", secret, rank=rank, who=who, timeout_s=5, patience_s=patience_s)
            stack.callback(store.leave)
            return store

        yield connect_rank


def dial(server):
    return socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_ranks_exchange_values(server, connect):
    """Nothing of the start-up would work."""
    with ThreadPoolExecutor(3) as pool:

        def run(rank):
            store = connect(server.port, rank)
            store.barrier("start", rank, 3, 5)
            store.add("count", rank)
            if rank == 0:
                store.set("plan", {"ring": [0, 1, 2]})
            got = store.gather("facts", rank, 3, {"rank": rank, "text": "ä" * 3000}, 5)
            plan, total = store.get("plan", 5), store.get("count", 5)
            store.barrier("end", rank, 3, 5)
            store.leave()
            return [each["rank"] for each in got], plan, total

        results = list(pool.map(run, range(3)))
    assert results == [([0, 1, 2], {"ring": [0, 1, 2]}, 3)] * 3


def test_values_larger_than_a_socket_buffer_travel(server, connect):
    """A plan for a large model would never arrive."""
    store = connect(server.port)
    value = "x" * (5 << 20)
    store.set("big", value)
    assert store.get("big", 1) == value
    with pytest.raises(RendezvousError, match="FRAME_BYTES_MAX"):
        store.set("too big", "x" * (17 << 20))


def test_strangers_with_garbage_do_not_disturb_a_rendezvous(server, caplog, connect):
    """A port scanner on the network would keep a job from starting."""
    noise_source = random.Random(5)  # noqa: S311
    garbage = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"HKSTORE\x01" + noise_source.randbytes(200),
        b"\x16\x03\x01\x02\x00" + noise_source.randbytes(512),
        b"\x00" * 5000,
        encode(b'{"op":"set","key":"evil","value":1}'),
        b"",
        *(noise_source.randbytes(noise_source.randrange(1, 300)) for _ in range(20)),
    ]

    def stranger(data):
        with dial(server) as connection:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            answered = b""
            try:
                while more := connection.recv(4096):
                    answered += more
            except ConnectionError:
                pass
            return len(answered)

    def rank(number):
        store = connect(server.port, number)
        return [store.gather("turn", number, 4, number, 10) for _ in range(5)]

    with caplog.at_level(logging.WARNING, "hocket.store"), ThreadPoolExecutor(8) as pool:
        with dial(server) as liar:
            tls = _native.Tls(connects=True)
            liar.sendall(tls.send())
            while tls.binding is None:
                tls.receive(liar.recv(4096))
                liar.sendall(tls.send())
            liar.sendall(tls.send(Connector(b"f" * 16, tls.binding).hello() + bytes(PROOF_BYTES)))
            while liar.recv(4096):
                pass
        noise = [pool.submit(stranger, data) for data in garbage]
        ranks = [pool.submit(rank, number) for number in range(4)]
        assert [each.result(20) for each in ranks] == [[[0, 1, 2, 3]] * 5] * 4
        assert max(each.result(20) for each in noise) <= CHALLENGE_BYTES
    assert "does not speak the protocol" in caplog.text
    assert "does not know this job's secret" in caplog.text
    assert len(caplog.records) <= servers.STRANGERS_LOGGED_MAX + 1


def test_silent_strangers_make_room(server, monkeypatch, connect):
    """Whoever opens many connections and says nothing would keep the ranks out."""
    monkeypatch.setattr(servers, "STRANGERS_MAX", 5)
    crowd = [dial(server) for _ in range(30)]
    try:
        assert connect(server.port).gather("g", 0, 1, 7, 5) == [7]
    finally:
        for each in crowd:
            each.close()


def test_a_stranger_that_says_nothing_is_dropped_in_time(server, monkeypatch, caplog):
    """Half-open connections would pile up for as long as the job runs."""
    monkeypatch.setattr(servers, "HANDSHAKE_TIMEOUT_S", 0.05)
    with dial(server) as silent:
        assert silent.recv(1) == b""
    assert "did not prove the secret" in caplog.text


def test_a_proven_client_that_breaks_the_protocol_is_dropped_and_named_lost(server, connect):
    """A rank of another version would leave the others waiting."""
    waiting = connect(server.port, 1)
    with dial(server) as raw, ThreadPoolExecutor(1) as pool:
        channel = Channel(raw)
        deadline_s = time.monotonic() + 10
        channel.prove(SECRET, deadline_s)
        channel.send(encode(b'{"op":"hello","rank":0,"who":"rank 0 on odd"}'), deadline_s)
        outcome = pool.submit(waiting.gather, "g", 1, 2, None, 30)
        channel.send(encode(b'{"op":"dance"}'), deadline_s)
        with pytest.raises(RendezvousError, match="rank 0 on odd ended") as ended:
            outcome.result(10)
        assert ended.value.rank == 0


class Tap:
    """Carries a client's bytes to a server and back and keeps them; changes the last byte of a read of the client's if asked."""

    def __init__(self, port, flip_at=None):
        self.port, self.flip_at, self.seen = port, flip_at, bytearray()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.carry)
        self.thread.start()

    def carry(self):
        client, _ = self.listener.accept()
        server = socket.create_connection(("127.0.0.1", self.port))
        back = threading.Thread(target=self.pump, args=(server, client, None))
        back.start()
        self.pump(client, server, self.flip_at)
        back.join()
        for each in (client, server):
            each.close()

    def pump(self, source, target, flip_at):
        reads = 0
        with contextlib.suppress(OSError):
            while data := bytearray(source.recv(4096)):
                if reads == flip_at:
                    data[-1] ^= 1
                reads += 1
                self.seen += data
                target.sendall(data)
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)

    def close(self):
        self.thread.join(10)
        self.listener.close()


def test_nobody_on_the_path_reads_what_ranks_say_to_the_store(server):
    """Addresses, plans and policies would be readable by everybody on the network."""
    with contextlib.closing(Tap(server.port)) as tap:
        store = Store(tap.address, SECRET, rank=0, who="rank 0 on h", timeout_s=5)
        store.set("plan", "a text that is easy to find")
        assert store.get("plan", 1) == "a text that is easy to find"
        store.leave()
    assert len(tap.seen) > 500
    assert b"easy to find" not in tap.seen
    assert b"rank 0" not in tap.seen


def test_nobody_on_the_path_changes_what_ranks_say_to_the_store(server, caplog):
    """A man in the middle would give ranks another plan, or other addresses."""
    for flip_at in (1, 2, 3, 10):
        with (
            contextlib.closing(Tap(server.port, flip_at)) as tap,
            caplog.at_level(logging.WARNING, "hocket.store"),
            pytest.raises(RendezvousError),
        ):
            store = Store(tap.address, SECRET, rank=1, who="rank 1 on h", timeout_s=5, patience_s=0.1)
            for _ in range(20):
                store.set("k", "changed")
        deadline_s = time.monotonic() + 10
        while "TLS: a record was" not in caplog.text and time.monotonic() < deadline_s:
            time.sleep(0.01)
        assert "TLS: a record was" in caplog.text
        caplog.clear()


class Relay(threading.Thread):
    """Opens the session of a client and its own to the server, and says in one what it hears in the other."""

    def __init__(self, port):
        super().__init__()
        self.port = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.start()

    def run(self):
        client, _ = self.listener.accept()
        server = socket.create_connection(("127.0.0.1", self.port))
        ends = {client: _native.Tls(connects=False), server: _native.Tls(connects=True)}
        other = {client: server, server: client}
        with client, server, contextlib.suppress(OSError, RendezvousError):
            server.sendall(ends[server].send())
            late = {client: b"", server: b""}
            while True:
                for each in select.select([client, server], [], [], 10)[0]:
                    data = each.recv(4096)
                    if not data:
                        return
                    late[other[each]] += ends[each].receive(data)
                    each.sendall(ends[each].send())
                for each, plain in late.items():
                    if plain and ends[each].binding is not None:
                        each.sendall(ends[each].send(plain))
                        late[each] = b""


def test_nobody_in_the_middle_is_taken_for_the_store(server):
    """Who speaks TLS to both sides and passes the proofs on could read and change everything."""
    relay = Relay(server.port)
    with pytest.raises(RendezvousError, match="does not know this job's secret"):
        Store(relay.address, SECRET, rank=0, who="rank 0 on h", timeout_s=5)
    relay.join(10)
    relay.listener.close()


def test_a_taken_address_says_so(server):
    """The user would see a bare `Address already in use` of some socket."""
    with pytest.raises(RendezvousError, match=rf"127.0.0.1:{server.port} .*in use") as caught:
        Server(["127.0.0.1"], server.port, SECRET)
    assert "hint: " in str(caught.value)


def test_an_address_of_another_machine_cannot_be_listened_at():
    """Rank 0 on the wrong machine would not say why it fails."""
    with pytest.raises(RendezvousError, match=r"192\.0\.2\.1:29400"):
        Server(["192.0.2.1"], 29400, SECRET)


def test_an_address_where_nobody_listens_is_named(server, connect):
    """A mistyped port would look like a hang."""
    port = server.port
    server.close()
    with pytest.raises(RendezvousError, match=f"nobody listens at 127.0.0.1:{port}"):
        connect(port, patience_s=0.2)


def test_an_unknown_name_is_named(monkeypatch):
    """A mistyped host name would look like a hang."""
    monkeypatch.setattr(stores, "PATIENCE_S", 0.2)
    with pytest.raises(RendezvousError, match=r"`no-such-host\.invalid` is not known"):
        Store("no-such-host.invalid:29400", SECRET, rank=0, who="r", timeout_s=5)


def test_a_store_that_comes_later_is_waited_for(connect):
    """Ranks that start faster than rank 0 would fail."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    with ThreadPoolExecutor(1) as pool:
        early = pool.submit(connect, port, patience_s=10)
        time.sleep(0.15)
        with Server(["127.0.0.1"], port, SECRET):
            assert early.result(10).gather("g", 0, 1, 3, 5) == [3]


@pytest.mark.parametrize(
    ("says", "reason"),
    [(b"SSH-2.0-OpenSSH_9.6\r\n", "does not speak"), (b"", "did not answer"), (None, "without an answer")],
)
def test_another_program_at_the_address_is_recognised(monkeypatch, says, reason, connect):
    """A rank that dials an SSH server, a mute one, or one that hangs up would hang, too."""
    for each in ("HANDSHAKE_TIMEOUT_S", "PATIENCE_S", "UNANSWERED_S"):
        monkeypatch.setattr(stores, each, 0.2)
    with socket.create_server(("127.0.0.1", 0)) as other, contextlib.ExitStack() as accepted:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = other.accept()
                    if says is None:
                        connection.close()
                    else:
                        connection.sendall(says)
                        accepted.callback(connection.close)

        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(RendezvousError, match=reason):
            connect(other.getsockname()[1])
        other.shutdown(socket.SHUT_RDWR)
        serving.join(10)


def test_a_store_that_does_not_answer_at_once_is_tried_again(monkeypatch, connect):
    """A rank would fail where the launcher's machine has too much to do, and blame its address for that."""
    monkeypatch.setattr(stores, "HANDSHAKE_TIMEOUT_S", 0.2)
    with ThreadPoolExecutor(1) as pool:
        with socket.create_server(("127.0.0.1", 0)) as busy:
            port = busy.getsockname()[1]
            rank = pool.submit(connect, port, patience_s=10)
            unanswered, _ = busy.accept()
        with unanswered, Server(["127.0.0.1"], port, SECRET):
            assert rank.result(10).gather("g", 0, 1, 3, 5) == [3]


def test_a_wrong_secret_is_recognised(server, connect):
    """Two jobs at one address would mix."""
    with pytest.raises(RendezvousError, match="another job uses this address"):
        connect(server.port, secret=b"f" * 16)


def test_a_store_that_goes_is_noticed_and_stays_closed(server, connect):
    """A rank would hang in its next exchange after the launcher was killed."""
    store = connect(server.port)
    server.close()
    with pytest.raises(RendezvousError, match="is gone"):
        store.get("k", 5)
    with pytest.raises(RendezvousError, match="is closed"):
        store.get("k", 5)
    store.leave("twice is fine")


def test_a_store_that_stops_answering_is_given_up(monkeypatch, server, connect):
    """A frozen launcher would freeze every rank for ever."""
    monkeypatch.setattr(stores, "ANSWER_TIMEOUT_S", 0.2)
    store = connect(server.port)
    monkeypatch.setattr(server, "_send_answers", lambda: None)
    with pytest.raises(RendezvousError, match="does not answer"):
        store.get("k", 0.1)


def test_leaving_with_a_reason_tells_those_who_wait(server, connect):
    """Only one rank would report why the job cannot start."""
    first, second = connect(server.port, 0), connect(server.port, 1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(first.get, "plan", 30)
        second.leave("weights differ")
        with pytest.raises(RendezvousError, match="gave up: weights differ") as told:
            waiting.result(10)
        assert told.value.rank == 1


def test_closing_leaves_neither_thread_nor_descriptor(connect):
    """A notebook that starts job after job would run out of file descriptors."""

    def open_now():
        return len(os.listdir("/proc/self/fd")), threading.active_count()  # noqa: PTH208

    before = open_now()
    for _ in range(3):
        server = Server(["127.0.0.1"], 0, SECRET)
        stranger, store = dial(server), connect(server.port)
        store.leave()
        server.close()
        server.close()
        stranger.close()
    assert open_now() == before


def test_only_the_given_addresses_are_listened_at(server):
    """Whoever reaches any interface of rank 0's machine could knock at the job's store."""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", server.port), timeout=5)
    with Server(["127.0.0.1", "127.0.0.2"], 0, SECRET) as both:
        for host in ("127.0.0.1", "127.0.0.2"):
            socket.create_connection((host, both.port), timeout=5).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.3", both.port), timeout=5)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_ipv6_alone_and_beside_ipv4():
    """Clusters with IPv6 addresses could not be used."""
    with Server(["::1"], 0, SECRET) as server:
        store = Store(f"[::1]:{server.port}", SECRET, rank=0, who="r", timeout_s=5)
        assert store.gather("g", 0, 1, 1, 5) == [1]
        assert store.local_address == "::1"
        store.leave()
    with Server(["127.0.0.1", "::1"], 0, SECRET) as server:
        for rank, host in enumerate(["127.0.0.1", "[::1]", "localhost"]):
            Store(f"{host}:{server.port}", SECRET, rank=rank, who="r", timeout_s=5).leave()
