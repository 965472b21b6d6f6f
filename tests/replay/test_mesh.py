"""The sockets of a replay: messages whole and in order, strangers at the door, nodes that leave."""

import contextlib
import socket
import threading
from types import SimpleNamespace

import pytest

from hocket.errors import PeerError
from hocket.job.store import address as addresses
from hocket.settings import Settings
from hocket.tools.replay.mesh import HELLO, PIECE_BYTES, Mesh
from hocket.tools.replay.node import Node
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


def pair(timeout_s=10.0, strangers=()):
    store = Table(strangers)
    found = {}

    def meet(rank):
        settings = Settings(timeout_s=timeout_s)
        found[rank] = Mesh(
            SimpleNamespace(rank=rank, world=2, bind="127.0.0.1", store=store, settings=settings), "x"
        )

    other = threading.Thread(target=meet, args=(1,))
    other.start()
    meet(0)
    other.join()
    return found[0], found[1], store


def test_messages_come_whole_and_in_order_both_ways():
    """A message would count as there when its first bytes are."""
    here, there, _ = pair()
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


def test_strangers_are_hung_up_on():
    """Anybody on the network could take a node's place, or keep it from its job."""
    here, there, store = pair(strangers=(b"", b"GET / HTTP/1.1\r\n\r\n", HELLO.pack(b"?" * 32, 1)))
    for stranger in store.hung_up:
        stranger.settimeout(10)
        # Hung up with bytes of theirs unread is a reset.
        with contextlib.suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
        stranger.close()
    here.send(1, 7, 3)
    assert there.poll(10)[0] or there.poll(10)[0] == [7]
    here.close()
    there.close()


def test_a_node_that_waits_in_vain_says_for_what():
    """A replay of a trace whose files do not belong together would never end."""
    here, there, _ = pair(timeout_s=0.2)
    messages = (Message(1, 0, 4, (), 0.0, 3),)
    with pytest.raises(PeerError, match="it waits for a message of node 1, iteration 3"):
        Node(here, 0, messages, 0.2).run()
    here.close()
    there.close()
