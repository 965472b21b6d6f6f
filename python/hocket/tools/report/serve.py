"""The page of a running job over HTTP: `GET /`, whose mark tells a browser that has it whether there is another one."""

from __future__ import annotations

import signal
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from threading import Event

from hocket.job.live.serving import Handler, Server, Subject
from hocket.tools.report.watched import REFRESH_S, Watched

REPORT = Subject(
    what="the report",
    readers="readers",
    variable="HOCKET_REPORT_TOKEN",
    how="as the password for which the browser asks",
)


def serve(directory: Path | None, where: str, token: str | None, say: Callable[[str], None]) -> None:
    """Serve the page of the run in `directory` until Ctrl-C or SIGTERM; `say` is given lines for people.

    None: the only job of this user here that writes a trace. Raises UsageError, ArtefactError: as `Watched`; UsageError,
    RendezvousError: as `Server`.
    """
    server = _Server(where, token, REPORT, _Handler)
    try:
        watched = server.watched = Watched(directory)
        over = Event()
        before = {
            each: signal.signal(each, lambda *_: over.set()) for each in (signal.SIGINT, signal.SIGTERM)
        }
        server.start()
        try:
            say(f"report of {watched.directory} at http://{server.address}/ until Ctrl-C")
            while not over.wait(REFRESH_S) and watched.runs():
                pass
            # A reader may have had the last page before.
            if watched.is_final or not over.is_set():
                say(f"the job has ended, and the page is final; `hocket report {watched.directory}` keeps it")
                over.wait()
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
            watched.close()
    finally:
        server.close()


class _Server(Server):
    watched: Watched


class _Handler(Handler):
    server: _Server
    asks = 'Basic realm="hocket report", charset="UTF-8"'

    def get(self) -> None:
        if self.path.partition("?")[0] != "/":
            self.answer(HTTPStatus.NOT_FOUND, b"the report is at /\n")
            return
        look = self.server.watched.look()
        mark = f'"{look.mark}"'
        told = {
            "ETag": mark,
            "Cache-Control": "no-cache",
            "X-Content-Type-Options": "nosniff",
            "Refresh-After-Ms": str(round(look.wait_s * 1000)),
        }
        if self.headers.get("If-None-Match") == mark:
            self.answer(HTTPStatus.NOT_MODIFIED, b"", headers=told)
        else:
            self.answer(HTTPStatus.OK, look.page.encode(), "text/html; charset=utf-8", told)
