"""Client of the rendezvous store in each rank: a few values that all ranks share during set-up.

It has one TCP connection, always within TLS, one request at a time, and a deadline on every wait. The server is
`hocket.job.store.server`, in the launcher or in rank 0; there is no service to install.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import Any

import msgspec
from msgspec import Raw

from hocket import typed
from hocket.errors import RendezvousError, StoreGoneError
from hocket.job.store import address as addresses
from hocket.job.store import frames, handshake
from hocket.job.store.channel import Channel
from hocket.job.store.live import Sight, Wanted
from hocket.job.store.messages import (
    REASON_MAX,
    TIMEOUT_MAX_S,
    Add,
    Done,
    Gather,
    Get,
    Hello,
    Leave,
    Look,
    Ping,
    Request,
    Set,
    Tell,
    read_answer,
)
from hocket.job.store.sought import STORE, Sought

log = logging.getLogger("hocket.rendezvous")

PATIENCE_S = 5.0
"""Time to retry an unreachable address, an unknown name, or an address without a listener."""
SILENT_S = 2.0
"""Time after which a client that waits for a listener logs it."""
HANDSHAKE_TIMEOUT_S = 5.0
UNANSWERED_S = 15.0
"""Time to retry if a listener does not answer: it may be an overloaded launcher."""
ANSWER_TIMEOUT_S = 10.0
"""Time limit beyond a request's own wait: after it, the store is busy or its machine is gone."""
LEAVE_TIMEOUT_S = 2.0
RETRY_S = 0.05
RETRY_S_MAX = 1.0
_NEVER = threading.Event()
"""Event that nobody sets: a client that is not told to give up retries for its whole patience."""


class Store:
    """Connection to the job's store. Values are anything that JSON can express. Thread-safe: requests are queued.

    Args:
        address: `HOST:PORT` of the server.
        secret: the job's; both sides prove it.
        rank: this process's; None to observe only.
        who: this process's name in messages: "rank 3 on node7 (pid 4711)".
        timeout_s: how long to wait for the server.
        patience_s: how long to retry while nobody listens there; default PATIENCE_S.
        given_up: set by another thread, ends the retries.

    Raises:
        RendezvousError: nothing listens there, or another program does.

    >>> from hocket.job.store.server import Server
    >>> server = Server(["127.0.0.1"], 0, b"0123456789abcdef")
    >>> store = Store(f"127.0.0.1:{server.port}", b"0123456789abcdef", rank=0, who="rank 0", timeout_s=5)
    >>> store.gather("colour", rank=0, world=1, value="red", timeout_s=5)
    ['red']
    >>> store.leave(); server.close()
    """

    def __init__(
        self,
        address: str,
        secret: bytes,
        *,
        rank: int | None,
        who: str,
        timeout_s: float,
        patience_s: float | None = None,
        given_up: threading.Event = _NEVER,
    ) -> None:
        """Connect, prove the secret, introduce this rank."""
        self.address = address
        self._lock = threading.Lock()
        self._frames = frames.Frames()
        connection, channel = connect(address, secret, timeout_s, patience_s, rank, given_up=given_up)
        self._channel: Channel | None = channel
        self.local_address: str = connection.getsockname()[0]
        self._ask(Hello(rank=rank, who=who))

    def set(self, key: str, value: Any) -> None:
        """Set the value of `key` for everyone, replacing the old one."""
        self._ask(Set(key=key, value=_raw(value)))

    def get(self, key: str, timeout_s: float, *, at_least: int | None = None) -> Any:
        """Wait until `key` has a value; RendezvousError names the key, and its `rank` the owner: 3 for `plan/3`. `at_least`: wait
        until the counter `key` has come to this."""
        timeout_s = min(timeout_s, TIMEOUT_MAX_S)
        return self._ask(Get(key=key, timeout_s=timeout_s, at_least=at_least), timeout_s)

    def add(self, key: str, n: int = 1) -> int:
        """Add `n` to the counter `key`, 0 at first; return its new value."""
        return int(self._ask(Add(key=key, n=n)))

    def gather(
        self,
        name: str,
        rank: int,
        world: int,
        value: Any,
        timeout_s: float,
        *,
        without_lost: bool = False,
    ) -> list[Any]:
        """Contribute `value` and wait for all ranks' values; return them by rank. A name may be used again.

        `without_lost`, equal on all ranks: ranks that gave up, died or left are not waited for, and have None.

        Raises:
            RendezvousError: ranks are `missing`, or one (`rank`) has another world size, gave up or died.
        """
        timeout_s = min(timeout_s, TIMEOUT_MAX_S)
        request = Gather(
            name=name,
            rank=rank,
            world=world,
            value=_raw(value),
            timeout_s=timeout_s,
            without_lost=without_lost,
        )
        return list(self._ask(request, timeout_s))

    def barrier(self, name: str, rank: int, world: int, timeout_s: float) -> None:
        """Wait until all ranks are here."""
        self.gather(name, rank, world, None, timeout_s)

    def clock_ns(self) -> int:
        """Return the server's CLOCK_MONOTONIC in nanoseconds at some moment of this call."""
        return int(self._ask(Ping()))

    def tell(self, rank: int, status: Any) -> Wanted:
        """Report how a rank gets on; return what observers want of it."""
        return typed.of_json(self._value(Tell(rank=rank, status=_raw(status))), Wanted)

    def look(self, stack_of: int | None = None, *, dumps: bool = False) -> Sight:
        """Return what the ranks have reported last. `stack_of`: rank whose stack is wanted in a report; `dumps`: so are dumps."""
        return typed.of_json(self._value(Look(stack_of=stack_of, dumps=dumps)), Sight)

    def leave(self, reason: str | None = None, cause: tuple[int, str] | None = None) -> None:
        """Leave and close; a reason is passed to all waiting ranks. Idempotent, never raises.

        `cause`: the rank because of which this one does not go on, and what that rank did.
        """
        rank, why = cause or (None, None)
        reason = None if reason is None else reason[:REASON_MAX]
        try:
            if self._channel is not None:
                self._ask(Leave(reason=reason, cause=rank, why=why))
        except RendezvousError:
            pass  # the store is gone, so nobody can be told
        finally:
            self._close()

    def hang_up(self) -> None:
        """End the connection from another thread; a thread that waits gets a RendezvousError. Idempotent, never raises."""
        channel = self._channel
        if channel is not None:
            channel.hang_up()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def _ask(self, request: Request, wait_s: float = 0.0) -> Any:
        return typed.of_json(self._value(request, wait_s))

    def _value(self, request: Request, wait_s: float = 0.0) -> Raw:
        with self._lock:
            if self._channel is None:
                raise StoreGoneError(f"the connection to the store at {self.address} is closed")
            try:
                limit_s = LEAVE_TIMEOUT_S if isinstance(request, Leave) else wait_s + ANSWER_TIMEOUT_S
                payload = self._exchange(self._channel, request, time.monotonic() + limit_s)
                answer = read_answer(payload)
            except TimeoutError:
                self._close()
                raise StoreGoneError(
                    f"the store at {self.address} does not answer\n"
                    "hint: see whether the launcher, or rank 0 that serves it, still runs"
                ) from None
            except OSError as error:
                self._close()
                raise StoreGoneError(
                    f"the store at {self.address} is gone: {error.strerror or error}\n"
                    "hint: the launcher, or rank 0 that served it, has ended; its output says why"
                ) from None
            except RendezvousError as error:
                self._close()
                raise RendezvousError(
                    f"what came from the store at {self.address} makes no sense: {error}\n"
                    "hint: something between here and there changes what is sent"
                ) from None
            except (
                BaseException
            ):  # Ctrl-C in the middle of an exchange: the next answer would belong to this request
                self._close()
                raise
        if isinstance(answer, Done):
            return answer.value
        raise RendezvousError(answer.message, rank=answer.rank, missing=answer.missing)

    def _exchange(self, channel: Channel, request: Request, deadline_s: float) -> bytes:
        channel.send(frames.encode(msgspec.json.encode(request)), deadline_s)
        while (payload := self._frames.poll()) is None:
            self._frames.feed(channel.receive(deadline_s))
        return payload

    def _close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


class _UnansweredError(ConnectionAbortedError):
    """Error: a listener does not answer."""


def connect(
    address: str,
    secret: bytes,
    timeout_s: float,
    patience_s: float | None = None,
    rank: int | None = None,
    *,
    sought: Sought = STORE,
    given_up: threading.Event = _NEVER,
) -> tuple[socket.socket, Channel]:
    """Connect to a server of the job, and prove the secret; retry for `patience_s` if a listener comes later, otherwise for
    PATIENCE_S, but no longer than until `given_up`. `rank`: told to a server with another secret. `sought`: what the server is."""
    host, port = addresses.split(address)
    began_s = time.monotonic()
    pause_s = RETRY_S
    told = False
    while True:
        left_s = timeout_s - (time.monotonic() - began_s)
        try:
            return _attempt((host, port), secret, max(left_s, RETRY_S), rank, sought)
        except (OSError, addresses.UnknownNameError) as error:
            waited_s = time.monotonic() - began_s
            refused = isinstance(error, ConnectionRefusedError)
            others_s = UNANSWERED_S if isinstance(error, _UnansweredError) else PATIENCE_S
            may_come = refused or sought.comes_late
            waits_s = min(timeout_s, (patience_s if may_come else None) or others_s)
            if waited_s + pause_s > waits_s or given_up.is_set():
                raise _unreachable(address, error, waited_s, sought) from None
            if may_come and not told and waited_s > SILENT_S and waits_s > PATIENCE_S:
                log.warning("nobody listens at %s yet; waiting for %.0f s more", address, waits_s - waited_s)
                told = True
        given_up.wait(pause_s)
        pause_s = min(2 * pause_s, RETRY_S_MAX)


def _attempt(
    address: tuple[str, int], secret: bytes, timeout_s: float, rank: int | None, sought: Sought
) -> tuple[socket.socket, Channel]:
    host, port = address
    last: OSError | None = None
    for family, where in addresses.resolve(host, port):
        connection = socket.socket(family, socket.SOCK_STREAM)
        try:
            connection.settimeout(min(timeout_s, PATIENCE_S))
            connection.connect(where)
            if connection.getsockname() == connection.getpeername():  # a free port can connect to itself
                raise ConnectionRefusedError("Connection refused")
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            channel = Channel(connection)
            _prove(channel, secret, addresses.join(host, port), rank, sought)
        except OSError as error:
            connection.close()
            last = error
        except BaseException:
            connection.close()
            raise
        else:
            return connection, channel
    assert last is not None  # noqa: S101  # the resolver gives an address or raises
    raise last


def _prove(channel: Channel, secret: bytes, address: str, rank: int | None, sought: Sought) -> None:
    try:
        channel.prove(secret, time.monotonic() + HANDSHAKE_TIMEOUT_S, rank)
    except TimeoutError:
        raise _UnansweredError(f"it did not answer, and may not be {sought.whole_name}") from None
    except ConnectionError:  # a store besieged by strangers drops connections, too
        raise _UnansweredError("it closes connections without an answer") from None
    except handshake.HandshakeError as error:
        raise RendezvousError(
            f"what listens at {address} is not {sought.whole_name}: {error}\nhint: {sought.another}"
        ) from None


def _unreachable(address: str, error: Exception, waited_s: float, sought: Sought) -> RendezvousError:
    if isinstance(error, addresses.UnknownNameError):
        return error
    if isinstance(error, ConnectionRefusedError):
        what = f"nobody listens at {address} (tried for {waited_s:.0f} s)"
        hint = sought.absent
    else:
        reason = (
            "no answer" if isinstance(error, TimeoutError) else str(getattr(error, "strerror", None) or error)
        )
        what = f"the {sought.name} at {address} cannot be reached from {socket.gethostname()}: {reason}"
        hint = sought.unreachable
    return RendezvousError(f"{what}\nhint: {hint}")
