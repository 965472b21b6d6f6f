"""Server of a job's launcher or of rank 0: one thread, one selector, and a machine without I/O, by default the store's `Ledger`.

All traffic is within TLS. Strangers cannot disturb a job: nothing but TLS is parsed before the proof of the secret, which must
arrive within HANDSHAKE_TIMEOUT_S, and the oldest unproven connection makes room for a new one. A client that breaks the protocol is
logged and dropped. Closing leaves neither thread nor socket. An error of the thread itself is `failure`: all connections end with
it, so that no client waits for an answer.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from hocket import _native
from hocket.errors import RendezvousError
from hocket.job.store import address as addresses
from hocket.job.store import frames, handshake, owners
from hocket.job.store.handshake import Acceptor
from hocket.job.store.ledger import Ledger

HANDSHAKE_TIMEOUT_S = 5.0
STRANGERS_MAX = 256
"""Limit of unproven connections. A proof takes two round trips: honest ranks finish before this is reached."""
CLIENTS_MAX = 1 << 14
STRANGERS_LOGGED_MAX = 20
UNSENT_BYTES_MAX = 4 * frames.FRAME_BYTES_MAX
READ_BYTES = 1 << 16
BACKLOG = 1024
LINGER_TICK_S = 0.01
SLEEP_MAX_S = 3600.0
"""Longest single wait; a longer one is split, since the system counts milliseconds in 31 bits."""
ACCEPT_PAUSE_S = 0.1
"""Pause after running out of file descriptors for new connections."""
TCP_INFO_BYTES = 256
"""At least what the system stores of a connection."""
PORTS_TRIED = 20
"""Attempts to find a port that is free at all addresses."""

log = logging.getLogger("hocket.store")


@dataclass(eq=False)
class _Connection:
    number: int
    socket: socket.socket
    peer: str
    deadline_ns: int
    tls: _native.Tls = field(default_factory=lambda: _native.Tls(connects=False))
    acceptor: Acceptor | None = None
    proven: bool = False
    held: bytearray = field(default_factory=bytearray)
    frames: frames.Frames = field(default_factory=frames.Frames)
    unsent: bytearray = field(default_factory=bytearray)


class Machine(Protocol):
    """State machine behind the server. A client is a number that is used once."""

    def receive(self, client: int, payload: bytes, now_ns: int) -> None:
        """Handle a frame; RendezvousError if the client may not send it now."""

    def answers(self) -> Iterable[tuple[int, bytes]]:
        """Return frames to send since the last call, without their headers."""

    def disconnect(self, client: int) -> None:
        """Handle the end of a client's connection."""

    def expire(self, now_ns: int) -> None:
        """Do what is due at this time."""

    def deadline_ns(self) -> int | None:
        """Time at which `expire` is due next, or None."""

    def is_over(self, world: int) -> bool:
        """Return whether no client is connected and at least `world` ranks have been."""


class Server:
    """Server that runs until `close`.

    Args:
        hosts: IP addresses of this machine to listen at.
        port: 0 for one that is free at all of them; `ports`: first and last of those to choose from, zeros for any.
        secret: the job's.
        machine: answers clients; default: a store.
        elsewhere: how the user has it listen elsewhere, for errors.

    Raises:
        RendezvousError: the address is taken or not one of this machine.

    >>> with Server(["127.0.0.1"], 0, b"0123456789abcdef") as server:
    ...     server.port > 0
    True
    """

    def __init__(
        self,
        hosts: Sequence[str],
        port: int,
        secret: bytes,
        machine: Machine | None = None,
        *,
        ports: tuple[int, int] = (0, 0),
        elsewhere: str = "set HOCKET_STORE to a free ADDRESS:PORT of rank 0's machine, on all ranks",
    ) -> None:
        choices = [port] if port else [0] * PORTS_TRIED if ports == (0, 0) else range(ports[0], ports[1] + 1)
        if port == 0 and ports != (0, 0):
            elsewhere = "give more ports by HOCKET_PORTS=FIRST-LAST"
        self._listeners = _listen_at_all(hosts, choices, elsewhere)
        self._port = int(self._listeners[0].getsockname()[1])
        self._secret = secret
        self._machine: Machine = Ledger() if machine is None else machine
        self._calls: deque[Callable[[], None]] = deque()
        self._connections: dict[int, _Connection] = {}
        self._accepted = 0
        self._strangers_logged = 0
        self._accept_again_ns: int | None = None
        self._closing = threading.Event()
        self.failure: str | None = None
        """Error that has ended the thread, or None."""
        self._on_failure: Callable[[str], None] | None = None
        self._wake_in, self._wake_out = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._listen(True)
        self._selector.register(self._wake_out, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._serve, name="hocket-store", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return self._port

    def on_failure(self, tell: Callable[[str], None]) -> None:
        """Register a function that the server's thread calls if it ends with an error."""
        self._on_failure = tell

    def call(self, function: Callable[[], None]) -> None:
        """Call a function soon in the thread that runs the machine; never if that thread has ended."""
        if self.failure is not None:
            return
        self._calls.append(function)
        self._wake_in.send(b"x")

    def tcp_info(self, client: int) -> bytes:
        """Return what the system tells of a client's connection (`struct tcp_info`); nothing if it has ended. For the machine."""
        connection = self._connections.get(client)
        if connection is None:
            return b""
        return connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)

    def close(self, linger_s: float = 0.0, world: int = 0) -> None:
        """Stop serving, after waiting at most `linger_s` for `world` ranks to have come and left; idempotent."""
        if self._closing.is_set():
            return
        deadline_s = time.monotonic() + linger_s
        while time.monotonic() < deadline_s and not self._machine.is_over(world):
            time.sleep(LINGER_TICK_S)
        self._closing.set()
        self._wake_in.send(b"x")
        self._thread.join()
        for each in (self._wake_in, self._wake_out):
            each.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self) -> None:
        try:
            with self._selector:
                while not self._closing.is_set():
                    self._turn()
        except Exception as error:  # of any kind: no client may wait for this thread any more
            log.exception("the server at port %d has failed", self.port)
            self.failure = f"the thread that serves port {self.port} failed: {type(error).__name__}: {error}"
            if self._on_failure is not None:
                self._on_failure(self.failure)
        finally:
            for each in (*self._listeners, *(connection.socket for connection in self._connections.values())):
                each.close()

    def _turn(self) -> None:
        for key, events in self._selector.select(self._timeout_s()):
            if key.fileobj in self._listeners:
                self._accept(key.fileobj)
            elif isinstance(key.data, _Connection):
                self._move(key.data, events)
            else:
                self._wake_out.recv(READ_BYTES)
        while self._calls:
            self._calls.popleft()()
        self._expire(time.monotonic_ns())
        self._send_answers()

    def _timeout_s(self) -> float | None:
        strangers = (each.deadline_ns for each in self._connections.values() if not each.proven)
        deadlines = [min(strangers, default=None), self._machine.deadline_ns(), self._accept_again_ns]
        nearest = min((each for each in deadlines if each is not None), default=None)
        if nearest is None:
            return None
        return min(max(0.0, (nearest - time.monotonic_ns()) / 1e9), SLEEP_MAX_S)

    def _listen(self, on: bool) -> None:
        for each in self._listeners:
            if on:
                self._selector.register(each, selectors.EVENT_READ)
            else:
                self._selector.unregister(each)

    def _accept(self, listener: socket.socket) -> None:
        try:
            accepted, peer = listener.accept()
        except BlockingIOError:
            return
        except OSError as error:
            log.warning("store: no new connection can be taken: %s", error.strerror)
            self._listen(False)
            self._accept_again_ns = time.monotonic_ns() + round(ACCEPT_PAUSE_S * 1e9)
            return
        strangers = [each for each in self._connections.values() if not each.proven]
        if len(self._connections) - len(strangers) >= CLIENTS_MAX:
            log.warning("store: %s turned away: server.CLIENTS_MAX is %d", peer, CLIENTS_MAX)
            accepted.close()
            return
        if len(strangers) >= STRANGERS_MAX:
            self._drop(strangers[0], "it made room for a newer one: server.STRANGERS_MAX are unproven")
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._accepted += 1
        deadline_ns = time.monotonic_ns() + round(HANDSHAKE_TIMEOUT_S * 1e9)
        where = addresses.join(peer[0], peer[1])
        connection = _Connection(self._accepted, accepted, where, deadline_ns)
        self._connections[connection.number] = connection
        self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _move(self, connection: _Connection, events: int) -> None:
        """Read and write what is possible; drop the connection when it ends or misbehaves."""
        if connection.number not in self._connections:
            return  # it was dropped for a new connection in this turn
        try:
            if events & selectors.EVENT_WRITE:
                self._send(connection)
            if events & selectors.EVENT_READ:
                data = connection.socket.recv(READ_BYTES)
                if not data:
                    self._drop(connection, "it closed the connection before it proved the secret")
                    return
                self._take(connection, data)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._drop(connection, error.strerror or str(error))
        except handshake.OtherSecretError as error:
            self._turn_away(connection, error)
        except RendezvousError as error:
            self._drop(connection, str(error), misbehaved=True)

    def _turn_away(self, connection: _Connection, error: handshake.OtherSecretError) -> None:
        """Drop a client with another secret. A claimed rank is believed only from this user's processes, which may end the job
        anyway (SECURITY.md)."""
        if error.claimed is None:
            self._drop(connection, str(error), misbehaved=True)
            return
        reason = f"it says that it is rank {error.claimed}, and does not know this job's secret"
        if isinstance(self._machine, Ledger) and owners.is_ours(connection.socket):
            self._machine.doubt(error.claimed, f"{connection.peer}: {reason}", time.monotonic_ns())
        self._drop(connection, reason, misbehaved=True)

    def _take(self, connection: _Connection, data: bytes) -> None:
        plain = self._unseal(connection, data)
        if not connection.proven:
            connection.held += plain
            self._handshake(connection)
            if not connection.proven:
                return
            plain = bytes(connection.held)
            connection.held.clear()
        connection.frames.feed(plain)
        while (payload := connection.frames.poll()) is not None:
            self._machine.receive(connection.number, payload, time.monotonic_ns())

    def _unseal(self, connection: _Connection, data: bytes) -> bytes:
        try:
            return connection.tls.receive(data)
        except RendezvousError as error:
            if connection.tls.binding is not None:
                raise
            raise handshake.HandshakeError(
                f"it does not speak the protocol of Hocket's store, or another version of it ({error})"
            ) from None
        finally:
            self._queue(connection, b"")

    def _handshake(self, connection: _Connection) -> None:
        held, binding = connection.held, connection.tls.binding
        if binding is None:
            return
        if connection.acceptor is None:
            handshake.check_magic(bytes(held))
            if len(held) < handshake.HELLO_BYTES:
                return
            hello = bytes(held[: handshake.HELLO_BYTES])
            del held[: handshake.HELLO_BYTES]
            connection.acceptor = Acceptor(self._secret, binding)
            self._queue(connection, connection.acceptor.handle_hello(hello))
        if len(held) >= handshake.PROOF_BYTES:
            proof = bytes(held[: handshake.PROOF_BYTES])
            del held[: handshake.PROOF_BYTES]
            self._queue(connection, connection.acceptor.handle_proof(proof))
            connection.proven = True

    def _send_answers(self) -> None:
        for number, answer in self._machine.answers():
            connection = self._connections.get(number)
            if connection is None:
                continue
            try:
                self._queue(connection, frames.encode(answer))
            except OSError as error:
                self._drop(connection, error.strerror or str(error))

    def _queue(self, connection: _Connection, data: bytes) -> None:
        connection.unsent += connection.tls.send(data)
        self._send(connection)
        if len(connection.unsent) > UNSENT_BYTES_MAX:
            raise OSError(f"it does not read: server.UNSENT_BYTES_MAX is {UNSENT_BYTES_MAX}")

    def _send(self, connection: _Connection) -> None:
        while connection.unsent:
            try:
                sent = connection.socket.send(connection.unsent)
            except BlockingIOError:
                break
            del connection.unsent[:sent]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
        self._selector.modify(connection.socket, wanted, connection)

    def _expire(self, now_ns: int) -> None:
        self._machine.expire(now_ns)
        if self._accept_again_ns is not None and self._accept_again_ns <= now_ns:
            self._accept_again_ns = None
            self._listen(True)
        for each in list(self._connections.values()):
            if not each.proven and each.deadline_ns <= now_ns:
                self._drop(
                    each, f"it did not prove the secret within {HANDSHAKE_TIMEOUT_S:g} s", misbehaved=True
                )

    def _drop(self, connection: _Connection, reason: str, *, misbehaved: bool = False) -> None:
        self._selector.unregister(connection.socket)
        del self._connections[connection.number]
        self._machine.disconnect(connection.number)
        if misbehaved or not connection.proven:
            self._log_stranger(connection.peer, reason)
        # Last: a client that sees the end finds the reason in the log.
        connection.socket.close()

    def _log_stranger(self, peer: str, reason: str) -> None:
        self._strangers_logged += 1
        if self._strangers_logged <= STRANGERS_LOGGED_MAX:
            log.warning("store: dropped %s: %s", peer, reason)
        elif self._strangers_logged == STRANGERS_LOGGED_MAX + 1:
            log.warning("store: further dropped connections are not logged")


WHY = {
    errno.EADDRINUSE: "another job or program uses it",
    errno.EADDRNOTAVAIL: "it is no address of this machine",
    errno.EACCES: "the first ports, up to 1023 on most machines, are root's",
}
"""Reasons why nobody can listen at an address, in a user's words."""


def _listen_at_all(hosts: Sequence[str], ports: Sequence[int], elsewhere: str) -> tuple[socket.socket, ...]:
    """Return sockets on the first of `ports` that is free at all addresses; 0 is one of the system's choice."""
    for at, port in enumerate(ports):
        with contextlib.ExitStack() as undo:
            listeners: list[socket.socket] = []
            for host in hosts:
                chosen = listeners[0].getsockname()[1] if listeners else port
                try:
                    listeners.append(undo.enter_context(contextlib.closing(_listen(host, chosen))))
                except OSError as error:
                    # The port is taken, perhaps at the second address alone.
                    if at < len(ports) - 1 and error.errno == errno.EADDRINUSE and (port or listeners):
                        break
                    where = addresses.join(host, chosen)
                    tried = f"ports {ports[0]} to {ports[-1]} of {host}" if len(set(ports)) > 1 else where
                    why = f"{WHY[error.errno or 0]}; " if error.errno in WHY else ""
                    raise RendezvousError(
                        f"the store cannot listen at {tried} on {socket.gethostname()}: {error.strerror}\nhint: {why}{elsewhere}"
                    ) from None
            else:
                undo.pop_all()
                return tuple(listeners)
    raise AssertionError("the last try listens or raises")


def _listen(host: str, port: int) -> socket.socket:
    listener = socket.socket(addresses.family(host), socket.SOCK_STREAM)
    with contextlib.ExitStack() as undo:
        undo.callback(listener.close)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if listener.family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
        undo.pop_all()
    return listener
