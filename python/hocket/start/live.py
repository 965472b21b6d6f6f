"""Duties of a launcher to observers of its job: it keeps the file by which they find it, serves the metrics, and warns of late
ranks."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Sequence

from hocket.errors import UsageError
from hocket.job.live.alarm import Alarm
from hocket.job.live.endpoint import Endpoint
from hocket.job.live.files import SUFFIX, LiveJob, kept, newest, traced
from hocket.job.live.observer import Observer
from hocket.job.store.ledger import Ledger
from hocket.job.store.live import Gone
from hocket.job.store.server import Server
from hocket.members.coordination import Coordination
from hocket.settings import Settings

TOLD_S, TICK_S = 1.5, 0.01
"""Time in which observers, which look once a second, hear how the job has ended."""

log = logging.getLogger("hocket.run")


class LiveGoodput:
    """Goodput of an elastic job for observers, as it was at the look before: the coordinator's thread alone reads its account."""

    def __init__(self, coordination: Coordination, coordinator: Server) -> None:
        self._coordination, self._coordinator = coordination, coordinator
        self._share: float | None = None

    def __call__(self) -> float | None:
        """Return the share of work that stands; None: it is not known yet."""
        self._coordinator.call(self._update)
        return self._share

    def _update(self) -> None:
        found = self._coordination.changes.account.goodput()
        self._share = None if found is None else found.share


def observed(
    stack: contextlib.ExitStack, store: str, secret: str, command: Sequence[str], settings: Settings
) -> None:
    """Let observers find the job, and scrape its metrics if that is set, and warn of ranks that are late, until the stack ends.

    UsageError, RendezvousError: metrics cannot be served there.
    """
    job = LiveJob(
        process=os.getpid(),
        launches=True,
        store=store,
        secret=secret,
        command=tuple(command),
        trace=traced(settings.trace),
    )
    try:
        stack.enter_context(kept(f"{job.process}-{store.rpartition(':')[2]}", job, SUFFIX))
    except (OSError, UsageError) as error:
        log.info("`hocket top` will not find this job by itself: %s", error)
    if settings.metrics is not None:
        endpoint = Endpoint(settings.metrics, settings.metrics_token, Observer(lambda: newest(job)))
        stack.callback(endpoint.close)
    if settings.warns_of_late:
        alarm = Alarm(Observer(lambda: newest(job)), late_s=settings.late_s)
        stack.callback(alarm.close)


def tell_observers(ledger: Ledger, store: Server, ended: Gone | None) -> None:
    """Wait, not for long, until those who look at the job know how it has ended. None: nobody is at fault."""
    if ended is None:
        return

    def end() -> None:
        ledger.live.ended = ended

    store.call(end)
    deadline_s = time.monotonic() + TOLD_S
    while not ledger.live.all_told() and time.monotonic() < deadline_s:
        time.sleep(TICK_S)
