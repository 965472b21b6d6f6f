"""Plain TCP between the nodes of a replay: one connection per pair, whole messages, sent at once and in order.

Parameter servers and most other systems whose traces exist communicate like this: they send without announcing first.
Hocket's own messages between two hosts are announced, and the announcement would wait behind bytes that are already
queued. Contents are arbitrary. A connecting node shows a token from the job's store, which only nodes of the job know.
"""

from __future__ import annotations

import hmac
import secrets
import selectors
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass, field

from hocket.errors import PeerError
from hocket.job.rendezvous import Job
from hocket.job.store import address as addresses
from hocket.refusals import REPLAY, TLS, refused

HEAD = struct.Struct("<QQ")
"""Header of a message: its number and its bytes."""

HELLO = struct.Struct("<32sI")
"""Greeting of a connecting node: token and node."""

HELLO_TIMEOUT_S = 5.0
"""Time limit for the greeting: a node sends it at once, and a stranger must not keep others waiting."""

PIECE_BYTES = 1 << 20
"""Bytes written or read at a time: nothing else happens meanwhile, for less than a millisecond."""


@dataclass
class _Connection:
    """State of one peer: bytes that wait to be written, and how much of the current message has been read."""

    peer: socket.socket
    node: int
    outgoing: deque[memoryview] = field(default_factory=deque)
    head: bytearray = field(default_factory=bytearray)
    number: int = -1
    left: int = 0


class Mesh:
    """Connections to all other nodes. Close them after use."""

    def __init__(self, job: Job, name: str) -> None:
        """Connect to the others; all nodes must call this with the same name. Raises PeerError, RendezvousError."""
        if job.settings.tls:
            instead = "measure encrypted traffic by hocket bench all_reduce --tcp --ours engine,tls"
            raise refused(TLS, REPLAY, what="a replay, which is of plain TCP,", instead=instead)
        self._timeout_s = job.settings.timeout_s
        # Gaps are microseconds; epoll(7) counts milliseconds.
        self._selector = selectors.SelectSelector()
        self._connections: dict[int, _Connection] = {}
        self._payload = memoryview(bytearray(PIECE_BYTES))
        self._landing = memoryview(bytearray(PIECE_BYTES))
        token = secrets.token_bytes(32)
        with socket.create_server(
            (job.bind, 0), family=addresses.family(job.bind), backlog=job.world
        ) as listener:
            mine = (addresses.join(job.bind, listener.getsockname()[1]), token.hex())
            everyone = job.store.gather(f"replay/{name}", job.rank, job.world, mine, self._timeout_s)
            for node, (where, theirs) in enumerate(everyone[: job.rank]):
                self._add(_connect(where, bytes.fromhex(theirs), job.rank, self._timeout_s), node)
            self._accept(listener, token, job)

    def send(self, node: int, number: int, size_bytes: int) -> None:
        """Queue a message, behind earlier ones to that node."""
        connection = self._connections[node]
        waiting = bool(connection.outgoing)
        connection.outgoing.append(memoryview(HEAD.pack(number, size_bytes)))
        whole, rest = divmod(size_bytes, PIECE_BYTES)
        connection.outgoing.extend([self._payload] * whole)
        if rest:
            connection.outgoing.append(self._payload[:rest])
        if not waiting:
            self._write(connection)

    def poll(self, timeout_s: float) -> tuple[list[int], bool]:
        """Return messages that arrived, and whether any byte moved. PeerError: a node has left."""
        arrived: list[int] = []
        ready = self._selector.select(timeout_s)
        for key, events in ready:
            connection = key.data
            if events & selectors.EVENT_WRITE:
                self._write(connection)
            if events & selectors.EVENT_READ:
                self._read(connection, arrived)
        return arrived, bool(ready)

    @property
    def idle(self) -> bool:
        """Return whether everything queued has been written."""
        return not any(connection.outgoing for connection in self._connections.values())

    def close(self) -> None:
        for connection in self._connections.values():
            connection.peer.close()
        self._selector.close()

    def _add(self, peer: socket.socket, node: int) -> None:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.setblocking(False)
        self._connections[node] = _Connection(peer, node)
        self._selector.register(peer, selectors.EVENT_READ, self._connections[node])

    def _accept(self, listener: socket.socket, token: bytes, job: Job) -> None:
        """Accept nodes with higher numbers; hang up on strangers."""
        missing = set(range(job.rank + 1, job.world))
        deadline_s = time.monotonic() + self._timeout_s
        while missing:
            listener.settimeout(max(0.001, deadline_s - time.monotonic()))
            try:
                peer, _ = listener.accept()
            except TimeoutError:
                named = ", ".join(map(str, sorted(missing)))
                raise PeerError(
                    f"node {job.rank}: nodes {named} did not connect within {self._timeout_s:g} s"
                ) from None
            try:
                peer.settimeout(HELLO_TIMEOUT_S)
                shown, node = HELLO.unpack(_exactly(peer, HELLO.size))
            except OSError:
                peer.close()
                continue
            if hmac.compare_digest(shown, token) and node in missing:
                self._add(peer, node)
                missing.discard(node)
            else:
                peer.close()

    def _write(self, connection: _Connection) -> None:
        try:
            while connection.outgoing:
                part = connection.outgoing[0]
                sent = connection.peer.send(part)
                if sent < len(part):
                    connection.outgoing[0] = part[sent:]
                else:
                    connection.outgoing.popleft()
        except BlockingIOError:
            pass
        except OSError as error:
            raise PeerError(f"node {connection.node} has left: {error.strerror}") from None
        writes = selectors.EVENT_WRITE if connection.outgoing else 0
        self._selector.modify(connection.peer, selectors.EVENT_READ | writes, connection)

    def _read(self, connection: _Connection, arrived: list[int]) -> None:
        try:
            if connection.number < 0:
                count = self._read_head(connection)
            else:
                count = connection.peer.recv_into(self._landing, min(connection.left, PIECE_BYTES))
                connection.left -= count
        except BlockingIOError:
            return
        except OSError as error:
            raise PeerError(f"node {connection.node} has left: {error.strerror}") from None
        if count == 0:
            raise PeerError(f"node {connection.node} has left: it closed its connection")
        if connection.number >= 0 and connection.left == 0:
            arrived.append(connection.number)
            connection.number = -1

    def _read_head(self, connection: _Connection) -> int:
        data = connection.peer.recv(HEAD.size - len(connection.head))
        connection.head += data
        if len(connection.head) == HEAD.size:
            connection.number, connection.left = HEAD.unpack(connection.head)
            connection.head.clear()
        return len(data)


def _connect(where: str, token: bytes, node: int, timeout_s: float) -> socket.socket:
    host, port = addresses.split(where)
    try:
        peer = socket.create_connection((host, port), timeout_s)
        peer.sendall(HELLO.pack(token, node))
    except OSError as error:
        raise PeerError(f"node {node}: {where} cannot be reached: {error.strerror or error}") from None
    return peer


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            raise ConnectionAbortedError
        data += more
    return data
