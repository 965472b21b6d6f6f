"""HTTP endpoint at which Prometheus scrapes a job's metrics: `GET /metrics`, and nothing else.

It listens on loopback unless told otherwise. Other machines are let in with a bearer token alone, which is not the job's secret: a
scrape is not encrypted, and whoever reads the secret could join the job.
"""

from __future__ import annotations

import hmac
import http.server
import logging
import socket
import threading
from http import HTTPStatus
from typing import Any

from hocket import extras
from hocket.errors import RendezvousError, UsageError
from hocket.job.live.observer import Observer
from hocket.job.store import address as addresses

TOKEN_CHARACTERS_MIN = 16
REQUEST_TIMEOUT_S = 5.0
"""Time in which a client must have sent its request."""
CLIENTS_MAX = 16
"""Limit of requests at a time; others are closed without an answer."""

log = logging.getLogger("hocket.metrics")


class Endpoint:
    """Endpoint of one job, until `close`.

    Args:
        where: `[ADDRESS:]PORT`; port 0: a free one.
        token: which a scrape must carry; None: any process of this machine may scrape.
        observer: of the job.

    Raises:
        UsageError: `where` is malformed, other machines could scrape without a token, or the token is too short.
        RendezvousError: the address is taken, or none of this machine.
        MissingExtraError: `prometheus_client` is not installed.
    """

    def __init__(self, where: str, token: str | None, observer: Observer) -> None:
        host, port = place_of(where)
        check_token(where, host, token)
        extras.need("prometheus_client", "HOCKET_METRICS (`hocket run --metrics`)")
        family = addresses.family(addresses.resolve(host, port)[0][1][0])
        try:
            self._server = _Server((host, port), family, token, observer)
        except OSError as error:
            raise RendezvousError(
                f"metrics cannot be served at {where}: {error.strerror or error}\n"
                "hint: another job or program may use the port; choose another one, or 0 for a free one"
            ) from None
        self.address = addresses.join(host, int(self._server.server_address[1]))
        self._observer = observer
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="hocket-metrics",
            daemon=True,
        )
        self._thread.start()
        log.warning(
            "metrics at http://%s/metrics%s", self.address, "" if token is None else ", with the token"
        )

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._observer.close()


def place_of(where: str) -> tuple[str, int]:
    """Return address and port of `[ADDRESS:]PORT`. UsageError: it is something else.

    >>> place_of("9400"), place_of("[::1]:9400")
    (('127.0.0.1', 9400), ('::1', 9400))
    """
    if where.isascii() and where.isdigit():
        where = f"{addresses.LOOPBACK}:{where}"
    return addresses.split(where, variable="metrics")


def check_token(where: str, host: str, token: str | None) -> None:
    """Raise UsageError if other machines could scrape at that address without a token, or with one that is easily guessed."""
    if token is None:
        if not addresses.leads_here_alone(host):
            raise UsageError(
                f"metrics at {where}: other machines reach that address, so that scrapes need a token\n"
                "hint: HOCKET_METRICS_TOKEN=$(openssl rand -hex 16), and the same as `authorization` in Prometheus "
                "(docs/monitoring.md); or leave the address out, and scrape from this machine"
            )
        return
    if len(token) < TOKEN_CHARACTERS_MIN or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"HOCKET_METRICS_TOKEN: a token has at least {TOKEN_CHARACTERS_MIN} characters, and no spaces\n"
            "hint: `openssl rand -hex 16` makes one"
        )


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, where: tuple[str, int], family: socket.AddressFamily, token: str | None, observer: Observer
    ) -> None:
        self.address_family = family
        self.token, self.observer = token, observer
        self._room = threading.BoundedSemaphore(CLIENTS_MAX)
        super().__init__(where, _Handler)

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
        log.info("a scrape from %s failed", client_address, exc_info=True)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: _Server
    server_version = "hocket"
    sys_version = ""
    timeout = REQUEST_TIMEOUT_S

    def do_GET(self) -> None:
        if not self._knows_token():
            self._answer(HTTPStatus.UNAUTHORIZED, b"a scrape needs the token of HOCKET_METRICS_TOKEN\n")
        elif self.path.partition("?")[0] != "/metrics":
            self._answer(HTTPStatus.NOT_FOUND, b"metrics are at /metrics\n")
        else:
            self._scrape()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # as the base class calls it
        """Log as the rest of Hocket does."""
        log.debug("%s: %s", self.address_string(), format % args)

    def _knows_token(self) -> bool:
        if self.server.token is None:
            return True
        given = self.headers.get("Authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode())

    def _scrape(self) -> None:
        from hocket.job.live.exposition import exposed  # noqa: PLC0415  # an extra, needed where it is served alone

        try:
            view = self.server.observer.look()
        except RendezvousError as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error.summary}\n".encode())
            return
        body, content_type = exposed(view, self.headers.get("Accept", ""))
        self._answer(HTTPStatus.OK, body, content_type)

    def _answer(
        self, status: HTTPStatus, body: bytes, content_type: str = "text/plain; charset=utf-8"
    ) -> None:
        self.send_response(status)
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
