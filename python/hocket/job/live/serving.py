"""HTTP about a job for programs and people that look at it: where it may be served, who may read it, and how many at a time.

It listens on loopback unless told otherwise. Other machines are let in with a token alone, which is not the job's secret: nothing
is encrypted here, and whoever reads the secret could join the job.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import http.server
import ipaddress
import logging
import socket
import threading
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from hocket.errors import RendezvousError, UsageError
from hocket.job.store import address as addresses

TOKEN_CHARACTERS_MIN = 16
REQUEST_TIMEOUT_S = 5.0
"""Time in which a client must have sent its request."""
CLIENTS_MAX = 16
"""Limit of requests at a time; others are closed without an answer."""
POLL_S = 0.1

log = logging.getLogger("hocket.live")


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Words for a server's messages: `what` (metrics, the report), `readers` of it, the `variable` of its token, and `how` a reader
    gives it."""

    what: str
    readers: str
    variable: str
    how: str


def place_of(where: str, subject: Subject) -> tuple[str, int]:
    """Return address and port of `[ADDRESS:]PORT`. UsageError: it is something else.

    >>> metrics = Subject(what="metrics", readers="scrapes", variable="HOCKET_METRICS_TOKEN", how="")
    >>> place_of("9400", metrics), place_of("[::1]:9400", metrics)
    (('127.0.0.1', 9400), ('::1', 9400))
    """
    if where.isascii() and where.isdigit():
        where = f"{addresses.LOOPBACK}:{where}"
    return addresses.split(where, variable=subject.what)


def check_token(where: str, host: str, token: str | None, subject: Subject) -> None:
    """Raise UsageError if other machines could read at that address without a token, or with one that is easily guessed."""
    if token is None:
        if not addresses.leads_here_alone(host):
            raise UsageError(
                f"{subject.what} at {where}: other machines reach that address, so that {subject.readers} need a token\n"
                f"hint: {subject.variable}=$(openssl rand -hex 16), and the same {subject.how} (docs/monitoring.md); or leave "
                "the address out, and stay on this machine"
            )
        return
    if len(token) < TOKEN_CHARACTERS_MIN or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"{subject.variable}: a token has at least {TOKEN_CHARACTERS_MIN} characters, and no spaces\n"
            "hint: `openssl rand -hex 16` makes one"
        )


class Server(http.server.ThreadingHTTPServer):
    """Server at `[ADDRESS:]PORT`, from construction until `close`, in a thread of its own.

    Args:
        where: port 0: a free one.
        token: which a request must carry; None: any process of this machine may read.
        subject: for messages.
        handler: of requests, a subclass of `Handler`.

    Raises:
        UsageError: `where` is malformed, other machines could read without a token, or the token is too short.
        RendezvousError: the address is taken, or none of this machine.
    """

    daemon_threads = True

    def __init__(self, where: str, token: str | None, subject: Subject, handler: type[Handler]) -> None:
        host, port = place_of(where, subject)
        check_token(where, host, token, subject)
        self.address_family = _family(host, port)
        self.token = token
        self.subject, self.host = subject, host
        self._room = threading.BoundedSemaphore(CLIENTS_MAX)
        try:
            super().__init__((host, port), handler)
        except OSError as error:
            raise RendezvousError(
                f"{subject.what} cannot be served at {where}: {error.strerror or error}\n"
                "hint: another job or program may use the port; choose another one, or 0 for a free one"
            ) from None
        self.address = addresses.join(host, int(self.server_address[1]))
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": POLL_S}, name="hocket-http", daemon=True
        )

    def start(self) -> None:
        """Answer from now on."""
        self._thread.start()

    def close(self) -> None:
        """Stop serving."""
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join()
        self.server_close()

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002  # as the base class calls it
        """Log what went wrong with a client; others are served."""
        log.info("%s for %s failed", self.subject.what, client_address, exc_info=True)


class Handler(http.server.BaseHTTPRequestHandler):
    """Handler of one request; subclasses answer one that may read in `get`."""

    server: Server
    server_version = "hocket"
    sys_version = ""
    timeout = REQUEST_TIMEOUT_S
    asks = "Bearer"
    """Scheme of `Authorization` that a client without a token is told of."""

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as the base class calls it
        """Log as the rest of Hocket does."""
        log.debug("%s: %s", self.address_string(), format % args)

    def get(self) -> None:
        """Answer."""
        raise NotImplementedError

    def do_GET(self) -> None:
        subject = self.server.subject
        if not self._knows_token():
            why = f"{subject.readers} of {subject.what} need the token of {subject.variable}\n"
            self.answer(HTTPStatus.UNAUTHORIZED, why.encode())
        elif self.server.token is None and not names_this_machine(self.headers.get("Host"), self.server.host):
            # A page of the web whose name leads to 127.0.0.1 reads nothing here.
            self.answer(HTTPStatus.FORBIDDEN, b"without a token, this is served to localhost alone\n")
        else:
            self.get()

    def answer(
        self,
        status: HTTPStatus,
        body: bytes,
        content_type: str = "text/plain; charset=utf-8",
        headers: dict[str, str] | None = None,
    ) -> None:
        """Send the whole answer."""
        self.send_response(status)
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", self.asks)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _knows_token(self) -> bool:
        token = self.server.token
        if token is None:
            return True
        given = token_of(self.headers.get("Authorization", ""))
        return given is not None and hmac.compare_digest(given.encode(), token.encode())


def token_of(authorization: str) -> str | None:
    """Return the token of an `Authorization` header: of a program (Bearer), or the password that a browser asks for (Basic).

    >>> token_of("Bearer 0a1b"), token_of("Basic OjBhMWI="), token_of("Basic ?")
    ('0a1b', '0a1b', None)
    """
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return rest
    if scheme.lower() != "basic":
        return None
    try:
        return base64.b64decode(rest, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return None


def names_this_machine(host: str | None, served: str = "") -> bool:
    """Return whether a `Host` header is loopback's, by name, address or as it is `served`; one of no browser may lack it.

    >>> [names_this_machine(each) for each in ("localhost:80", "127.0.0.1:80", "[::1]", None, "evil.example:80")]
    [True, True, True, True, False]
    """
    if host is None:
        return True
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    name = name.strip("[]")
    if name.lower() in ("localhost", served.lower()):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _family(host: str, port: int) -> socket.AddressFamily:
    return addresses.family(addresses.resolve(host, port)[0][1][0])
