"""Duties of a launcher to observers of its job: it keeps the file by which they find it, serves the metrics, and warns of late
ranks."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from hocket.errors import RendezvousError, UsageError
from hocket.job.live.alarm import Alarm
from hocket.job.live.endpoint import Endpoint
from hocket.job.live.files import SUFFIX, LiveJob, kept, traced
from hocket.job.live.observer import Observer
from hocket.job.store.ledger import Ledger
from hocket.job.store.live import Gone
from hocket.job.store.server import Server
from hocket.members.coordination import Coordination
from hocket.members.stores import Stores
from hocket.settings import Settings

TOLD_S, TICK_S = 1.5, 0.01
"""Time in which observers, which look once a second, hear how the job has ended."""

log = logging.getLogger("hocket.run")


class LiveGoodput:
    """Goodput of an elastic job for observers, as it was at the look before: the coordinator's thread alone reads its account."""

    def __init__(self, coordination: Callable[[], Coordination], coordinator: Server) -> None:
        self._coordination, self._coordinator = coordination, coordinator
        self._share: float | None = None

    def __call__(self) -> float | None:
        """Return the share of work that stands; None: it is not known yet."""
        self._coordinator.call(self._update)
        return self._share

    def _update(self) -> None:
        found = self._coordination().changes.account.goodput()
        self._share = None if found is None else found.share


class Shown:
    """Job as its launcher shows it to observers: at the store where its ranks report."""

    def __init__(self, job: LiveJob) -> None:
        """Keep the file by which observers find the job, from when there is a store."""
        self._job, self._lock, self._closed = job, threading.Lock(), False
        self._file = contextlib.ExitStack()
        self._keep()

    def now(self) -> LiveJob:
        """Return the job. RendezvousError: no rank has reported yet to this launcher."""
        if not self._job.store:
            raise RendezvousError("no rank of the job has reported yet")
        return self._job

    def moved(self, store: str) -> None:
        """Note that ranks have met at another store, and report there. In any thread."""
        with self._lock:
            self._job = msgspec.structs.replace(self._job, store=store, generation=self._job.generation + 1)
            self._keep()

    def close(self) -> None:
        """Remove the file; idempotent."""
        with self._lock:
            self._closed = True
            self._file.close()

    def _keep(self) -> None:
        if self._closed or not self._job.store:
            return
        before, self._file = self._file, contextlib.ExitStack()
        try:
            name = f"{self._job.process}-{self._job.store.rpartition(':')[2]}"
            self._file.enter_context(kept(name, self._job, SUFFIX))
        except (OSError, UsageError) as error:
            log.info("`hocket top` will not find this job by itself: %s", error)
        before.close()


def observed(
    stack: contextlib.ExitStack,
    store: str,
    secret: str,
    command: Sequence[str],
    settings: Settings,
    *,
    stores: Stores | None = None,
    generation: int = 0,
) -> None:
    """Let observers find the job, and scrape its metrics if that is set, and warn of ranks that are late, until the stack ends.

    `store`: where its ranks report, or "" if that is still to come; `stores`: where those of an elastic job do after that;
    `generation`: see `LiveJob`. UsageError, RendezvousError: metrics cannot be served there.
    """
    shown = Shown(
        LiveJob(
            process=os.getpid(),
            launches=True,
            store=store,
            secret=secret,
            command=tuple(command),
            generation=generation,
            trace=traced(settings.trace),
        )
    )
    stack.callback(shown.close)
    if stores is not None:
        stores.moved = shown.moved
    if settings.metrics is not None:
        endpoint = Endpoint(settings.metrics, settings.metrics_token, Observer(shown.now))
        stack.callback(endpoint.close)
    if settings.warns_of_late:
        alarm = Alarm(Observer(shown.now), late_s=settings.late_s)
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


def tell_of_end(coordination: Coordination, stores: Stores) -> None:
    """Let those who look at an elastic job know that it has ended before its scripts, if it has."""
    ended, met = coordination.roster.ended, stores.newest
    if ended is not None and met is not None:
        tell_observers(*met, Gone(message=ended.why, fault=None))
