"""The sockets of a replay: messages whole and in order, strangers at the door, nodes that leave."""

import contextlib
import socket
import threading
from types import SimpleNamespace

import pytest

from hocket import _native
from hocket.errors import PeerError
from hocket.job.store import address as addresses
from hocket.settings import Settings
from hocket.tools.replay.mesh import HEAD, HELLO, PIECE_BYTES, Mesh
from hocket.tools.replay.node import Node
from hocket.tools.replay.sealed import PROOF, Sealed
from hocket.tools.replay.traffic import Message

SIZES = [0, 1, PIECE_BYTES, 3 * PIECE_BYTES + 7, 5]


class Table:
    """A store of two nodes; `strangers` are let at the first node's door before the other one is told of it."""

    def __init__(self, strangers=()):
        self.given, self.lock, self.whole = {}, threading.Lock(), threading.Event()
        self.strangers, self.hung_up = strangers, []

    def gather(self, _name, rank, world, value, timeout_s):
        with self.lock:
            self.given[rank] = value
            if rank == 0:
                self.visit(value[0])
            if len(self.given) == world:
                self.whole.set()
        assert self.whole.wait(timeout_s)
        return [self.given[each] for each in range(world)]

    def visit(self, where):
        for said in self.strangers:
            self.hung_up.append(socket.create_connection(addresses.split(where)))
            self.hung_up[-1].sendall(said)
            self.hung_up[-1].shutdown(socket.SHUT_WR)


def pair(timeout_s=10.0, strangers=(), tls=False, store=None):
    store = store or Table(strangers)
    found = {}

    def meet(rank):
        settings = Settings(timeout_s=timeout_s, tls=tls)
        found[rank] = Mesh(
            SimpleNamespace(rank=rank, world=2, bind="127.0.0.1", store=store, settings=settings), "x"
        )

    def meet_quietly():
        with contextlib.suppress(PeerError):
            meet(1)

    other = threading.Thread(target=meet_quietly)
    other.start()
    try:
        meet(0)
    finally:
        other.join()
    return found[0], found[1], store


@pytest.mark.parametrize("tls", [False, True])
def test_messages_come_whole_and_in_order_both_ways(tls):
    """A message would count as there when its first bytes are."""
    here, there, _ = pair(tls=tls)
    for number, size_bytes in enumerate(SIZES):
        here.send(1, number, size_bytes)
        there.send(0, 10 + number, size_bytes)
    came = {0: [], 1: []}
    for _ in range(10_000):
        for own, mesh in ((0, here), (1, there)):
            came[own] += mesh.poll(0.001)[0]
        if len(came[0]) == len(came[1]) == len(SIZES):
            break
    assert came == {0: [10 + each for each in range(len(SIZES))], 1: list(range(len(SIZES)))}
    assert here.idle
    assert there.idle
    here.close()
    with pytest.raises(PeerError, match="node 0 has left"):
        for _ in range(100):
            there.poll(0.1)
    there.close()


@pytest.mark.parametrize("tls", [False, True])
def test_strangers_are_hung_up_on(tls):
    """Anybody on the network could take a node's place, or keep it from its job."""
    greeting = _native.Tls(connects=True).send() if tls else HELLO.pack(b"?" * 32, 1)
    strangers = (b"", b"GET / HTTP/1.1\r\n\r\n", greeting)
    here, there, store = pair(strangers=strangers, tls=tls)
    for stranger in store.hung_up:
        stranger.settimeout(10)
        # Hung up with bytes of theirs unread is a reset. TLS answers a greeting, and tells what is none.
        with contextlib.suppress(ConnectionResetError):
            while stranger.recv(1 << 16):
                assert tls
        stranger.close()
    here.send(1, 7, 3)
    assert there.poll(10)[0] or there.poll(10)[0] == [7]
    here.close()
    there.close()


class Between(Table):
    """Somebody between the nodes, who passes bytes on and looks at them, or ends TLS and begins another session."""

    def __init__(self, *, breaks):
        super().__init__()
        self.breaks, self.seen, self.stands = breaks, bytearray(), None

    def gather(self, name, rank, world, value, timeout_s):
        found = super().gather(name, rank, world, value, timeout_s)
        if rank == 0:
            return found
        listener = socket.create_server(("127.0.0.1", 0))
        where = addresses.join("127.0.0.1", listener.getsockname()[1])
        self.stands = threading.Thread(target=self.stand, args=(listener, found[0][0]))
        self.stands.start()
        return [(where, found[0][1]), found[1]]

    def stand(self, listener, where):
        with listener:
            one, _ = listener.accept()
        with one, socket.create_connection(addresses.split(where)) as other:
            if self.breaks:
                with contextlib.suppress(OSError):
                    inner, outer = Sealed(one, connects=False), Sealed(other, connects=True)
                    other.sendall(outer.seal(inner._exactly(PROOF.size)))
                    one.sendall(inner.seal(outer._exactly(32)))
                return
            back = threading.Thread(target=self.carry, args=(other, one))
            back.start()
            self.carry(one, other)
            back.join()

    def carry(self, source, destination):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                self.seen += data
                destination.sendall(data)
            destination.shutdown(socket.SHUT_WR)


def test_nobody_between_two_nodes_reads_or_takes_part():
    """HOCKET_TLS=1 would say that a replay is encrypted, and it were not, or to somebody else."""
    for tls in (False, True):
        between = Between(breaks=False)
        here, there, _ = pair(tls=tls, store=between)
        here.send(1, 7, 100)
        while 7 not in there.poll(0.1)[0]:
            here.poll(0.0)
        assert (HEAD.pack(7, 100) + bytes(100) in between.seen) is not tls
        assert (bytes.fromhex(between.given[0][1]) in between.seen) is not tls
        here.close()
        there.close()
        between.stands.join()
    between = Between(breaks=True)
    with pytest.raises(PeerError, match="nodes 1 did not connect"):
        pair(timeout_s=1.0, tls=True, store=between)
    between.stands.join()


def test_a_node_that_waits_in_vain_says_for_what():
    """A replay of a trace whose files do not belong together would never end."""
    here, there, _ = pair(timeout_s=0.2)
    messages = (Message(1, 0, 4, (), 0.0, 3),)
    with pytest.raises(PeerError, match="it waits for a message of node 1, iteration 3"):
        Node(here, 0, messages, 0.2).run()
    here.close()
    there.close()
