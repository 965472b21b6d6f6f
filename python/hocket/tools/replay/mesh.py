"""TCP between the nodes of a replay, plain or in TLS: one connection per pair, whole messages, sent at once and in order.

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

from hocket.errors import PeerError, RendezvousError
from hocket.job.rendezvous import Job
from hocket.job.store import address as addresses
from hocket.tools.replay.pieces import Pieces
from hocket.tools.replay.sealed import Sealed

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
    sealed: Sealed | None = None
    outgoing: deque[memoryview] = field(default_factory=deque)
    under_way: memoryview = field(default_factory=lambda: memoryview(b""))
    """Rest of a part that is being written, as it goes over the wire."""
    head: bytearray = field(default_factory=bytearray)
    number: int = -1
    left: int = 0


class Mesh:
    """Connections to all other nodes. Close them after use."""

    def __init__(self, job: Job, name: str) -> None:
        """Connect to the others; all nodes must call this with the same name. Raises PeerError, RendezvousError."""
        self._sealed = job.settings.tls
        self._timeout_s = job.settings.timeout_s
        # Gaps are microseconds; epoll(7) counts milliseconds.
        self._selector = selectors.SelectSelector()
        self._connections: dict[int, _Connection] = {}
        self._pieces: Pieces | None = None
        self._payload = memoryview(bytearray(PIECE_BYTES))
        self._landing = memoryview(bytearray(PIECE_BYTES))
        token = secrets.token_bytes(32)
        with socket.create_server(
            (job.bind, 0), family=addresses.family(job.bind), backlog=job.world
        ) as listener:
            mine = (addresses.join(job.bind, listener.getsockname()[1]), token.hex())
            everyone = job.store.gather(f"replay/{name}", job.rank, job.world, mine, self._timeout_s)
            for node, (where, theirs) in enumerate(everyone[: job.rank]):
                self._add(*self._connect(where, bytes.fromhex(theirs), job.rank), node)
            self._accept(listener, token, job)

    def watch(self, pieces: Pieces) -> None:
        """Wait for pieces that switches sum as well."""
        self._pieces = pieces
        self._selector.register(pieces.socket, pieces.events)

    def send(self, node: int, number: int, size_bytes: int) -> None:
        """Queue a message, behind earlier ones to that node."""
        connection = self._connections[node]
        waiting = bool(connection.outgoing or connection.under_way)
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
        pieces = self._pieces
        if pieces is not None:
            self._selector.modify(pieces.socket, pieces.events)
            if pieces.due_s is not None:
                timeout_s = max(0.0, min(timeout_s, pieces.due_s - time.perf_counter()))
        ready = self._selector.select(timeout_s)
        if pieces is not None:
            arrived += pieces.ready()
        for key, events in ready:
            connection = key.data
            if connection is None:
                continue
            if events & selectors.EVENT_WRITE:
                self._write(connection)
            if events & selectors.EVENT_READ:
                self._read(connection, arrived)
        return arrived, bool(ready)

    @property
    def idle(self) -> bool:
        """Return whether everything queued has been written."""
        connections = self._connections.values()
        return not any(connection.outgoing or connection.under_way for connection in connections)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.peer.close()
        self._selector.close()

    def _add(self, peer: socket.socket, sealed: Sealed | None, node: int) -> None:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        peer.setblocking(False)
        self._connections[node] = _Connection(peer, node, sealed)
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
            sealed = None
            try:
                peer.settimeout(HELLO_TIMEOUT_S)
                if self._sealed:
                    sealed = Sealed(peer, connects=False)
                    node = sealed.accept(token)
                else:
                    node = _greeted(peer, token)
            except (OSError, RendezvousError):
                peer.close()
                continue
            if node is not None and node in missing:
                self._add(peer, sealed, node)
                missing.discard(node)
            else:
                peer.close()

    def _connect(self, where: str, token: bytes, node: int) -> tuple[socket.socket, Sealed | None]:
        peer = sealed = None
        host, port = addresses.split(where)
        try:
            peer = socket.create_connection((host, port), self._timeout_s)
            if self._sealed:
                sealed = Sealed(peer, connects=True)
                sealed.connect(token, node)
            else:
                peer.sendall(HELLO.pack(token, node))
        except (OSError, RendezvousError) as error:
            if peer is not None:
                peer.close()
            why = getattr(error, "strerror", None) or error
            raise PeerError(f"node {node}: {where} cannot be reached: {why}") from None
        return peer, sealed

    def _write(self, connection: _Connection) -> None:
        try:
            while connection.under_way or connection.outgoing:
                if not connection.under_way:
                    part, sealed = connection.outgoing.popleft(), connection.sealed
                    connection.under_way = part if sealed is None else sealed.seal(part)
                sent = connection.peer.send(connection.under_way)
                connection.under_way = connection.under_way[sent:]
        except BlockingIOError:
            pass
        except OSError as error:
            raise PeerError(f"node {connection.node} has left: {error.strerror}") from None
        writes = selectors.EVENT_WRITE if connection.under_way or connection.outgoing else 0
        self._selector.modify(connection.peer, selectors.EVENT_READ | writes, connection)

    def _read(self, connection: _Connection, arrived: list[int]) -> None:
        try:
            count = connection.peer.recv_into(self._landing)
            came = self._landing[:count]
            plain = came if connection.sealed is None else memoryview(connection.sealed.opened(came))
        except BlockingIOError:
            return
        except (OSError, RendezvousError) as error:
            why = getattr(error, "strerror", None) or error
            raise PeerError(f"node {connection.node} has left: {why}") from None
        if count == 0:
            raise PeerError(f"node {connection.node} has left: it closed its connection")
        _take(connection, plain, arrived)


def _take(connection: _Connection, plain: memoryview, arrived: list[int]) -> None:
    """Take bytes of messages."""
    while plain:
        if connection.number < 0:
            missing = HEAD.size - len(connection.head)
            connection.head += plain[:missing]
            plain = plain[missing:]
            if len(connection.head) < HEAD.size:
                return
            connection.number, connection.left = HEAD.unpack(connection.head)
            connection.head.clear()
        count = min(connection.left, len(plain))
        connection.left -= count
        plain = plain[count:]
        if connection.left == 0:
            arrived.append(connection.number)
            connection.number = -1


def _greeted(peer: socket.socket, token: bytes) -> int | None:
    """Return the number of a connecting node that shows the token; None: it shows another."""
    shown, node = HELLO.unpack(_exactly(peer, HELLO.size))
    return int(node) if hmac.compare_digest(shown, token) else None


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = peer.recv(size - len(data))
        if not more:
            raise ConnectionAbortedError
        data += more
    return data
