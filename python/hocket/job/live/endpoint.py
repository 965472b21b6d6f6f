"""HTTP endpoint at which Prometheus scrapes a job's metrics: `GET /metrics`, and nothing else."""

from __future__ import annotations

import logging
from http import HTTPStatus

from hocket import extras
from hocket.errors import RendezvousError
from hocket.job.live.observer import Observer
from hocket.job.live.serving import Handler, Server, Subject, check_token, place_of

METRICS = Subject(
    what="metrics",
    readers="scrapes",
    variable="HOCKET_METRICS_TOKEN",
    how="as `authorization` in Prometheus",
)

log = logging.getLogger("hocket.metrics")


class Endpoint:
    """Endpoint of one job, until `close`.

    Args:
        where: `[ADDRESS:]PORT`; port 0: a free one.
        token: which a scrape must carry; None: any process of this machine may scrape.
        observer: of the job.

    Raises:
        UsageError, RendezvousError: as `Server`.
        MissingExtraError: `prometheus_client` is not installed.
    """

    def __init__(self, where: str, token: str | None, observer: Observer) -> None:
        check_token(where, place_of(where, METRICS)[0], token, METRICS)
        extras.need("prometheus_client", "HOCKET_METRICS (`hocket run --metrics`)")
        self._server = _Server(where, token, METRICS, _Handler)
        self._server.observer = observer
        self.address = self._server.address
        self._observer = observer
        self._server.start()
        log.warning(
            "metrics at http://%s/metrics%s", self.address, "" if token is None else ", with the token"
        )

    def close(self) -> None:
        """Stop serving."""
        self._server.close()
        self._observer.close()


class _Server(Server):
    observer: Observer


class _Handler(Handler):
    server: _Server

    def get(self) -> None:
        if self.path.partition("?")[0] != "/metrics":
            self.answer(HTTPStatus.NOT_FOUND, b"metrics are at /metrics\n")
        else:
            self._scrape()

    def _scrape(self) -> None:
        from hocket.job.live.exposition import exposed  # noqa: PLC0415  # an extra, needed where it is served alone

        try:
            view = self.server.observer.look()
        except RendezvousError as error:
            self.answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{error.summary}\n".encode())
            return
        body, content_type = exposed(view, self.headers.get("Accept", ""))
        self.answer(HTTPStatus.OK, body, content_type)
