"""View of one rank for others while the job runs: its reports, and, where rank 0 serves the job's store, metrics and warnings."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from hocket.job.dumps.failing import Failing
from hocket.job.live.alarm import Alarm
from hocket.job.live.files import LiveJob, traced
from hocket.job.live.observer import Observer
from hocket.job.live.publisher import Publisher
from hocket.job.live.status import Reporter

if TYPE_CHECKING:
    from hocket.job.rendezvous import Job


class Reports:
    """Reports of a rank, until `close`. `failing`: its dumps, if they are asked for."""

    def __init__(self, job: Job, generation: int) -> None:
        """Have dumps ready. `generation`: see `LiveJob`."""
        self._entry = _entry(job, generation)
        self.failing = None if job.settings.dumps is None else Failing(job, self._entry)
        self._open = contextlib.ExitStack()

    def begin(self, job: Job) -> None:
        """Report. `job`: as before; kept here, it would be kept until Python's next full collection.

        Rank 0 of a job whose launcher does not serve the store warns of ranks that are late, and serves metrics, if that is set:
        UsageError, RendezvousError as in `Endpoint`.
        """
        with contextlib.ExitStack() as undo:
            self._begin(job, self._entry, undo)
            self._open = undo.pop_all()

    def _begin(self, job: Job, entry: LiveJob, undo: contextlib.ExitStack) -> None:
        settings = job.settings
        # Nobody but this process knows the store of a process that is a job by itself.
        if not settings.live_interval_s or (job.world == 1 and job.server is not None):
            return
        publisher = Publisher(
            _reporter(job),
            entry,
            rank=job.rank,
            # The first rank of a host may be lost where others go on.
            announces=job.local_rank == 0 or job.elastic,
            dump=None if self.failing is None else self.failing.demanded,
        )
        undo.callback(publisher.close)
        # Groups of torch.distributed meet at rank 0's store, whoever has launched it.
        if job.server is not None and settings.warns_of_late:
            alarm = Alarm(Observer(lambda: entry), late_s=settings.late_s)
            undo.callback(alarm.close)
        if job.rank == 0 and settings.metrics is not None and not settings.store_served:
            from hocket.job.live.endpoint import Endpoint  # noqa: PLC0415  # loads an HTTP server, which few ranks need

            undo.callback(Endpoint(settings.metrics, settings.metrics_token, Observer(lambda: entry)).close)

    def close(self) -> None:
        """End them; idempotent."""
        self._open.close()
        self.end_dumps()

    def end_dumps(self) -> None:
        """Write no more dumps of this job; idempotent."""
        failing, self.failing = self.failing, None
        if failing is not None:
            failing.close()


def _entry(job: Job, generation: int) -> LiveJob:
    return LiveJob(
        process=os.getpid(),
        launches=False,
        store=job.store.address,
        secret=job.secret.hex(),
        command=tuple(sys.argv),
        generation=generation,
        trace=traced(job.settings.trace),
    )


def _reporter(job: Job) -> Reporter:
    return Reporter(
        job.progress,
        rank=job.rank,
        world=job.world,
        member=job.members[job.rank],
        host=job.host,
        elastic=job.elastic,
        interval_s=job.settings.live_interval_s,
        trains=job.rank < job.world - job.settings.besides,
    )
