"""Dumps of a failing job: the rank that notices writes its own, and has the others write theirs before it leaves.

An elastic job goes on without a rank that is lost. Its other ranks write theirs as they hear of it, in the step that has to do
without that rank, and each says who was lost. Files have the numbers that processes keep while ranks change.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hocket.errors import RendezvousError
from hocket.job.dumps import dumps, frames, steps
from hocket.job.dumps.calls import Calls, Frame
from hocket.job.dumps.demand import demand
from hocket.job.live.files import LiveJob
from hocket.job.live.observer import Observer

if TYPE_CHECKING:
    from hocket.job.rendezvous import Job

log = logging.getLogger("hocket.dumps")


class Failing:
    """Dumps of this rank in one job, until `close`. The job's settings say where."""

    def __init__(self, job: Job, entry: LiveJob) -> None:
        """Add the job's steps to what this process dumps."""
        self._job, self._entry = job, entry
        self._members = job.members[: job.world - job.settings.besides]
        """Ranks that train, by the numbers that their processes keep."""
        self._trains = threading.main_thread().ident
        self.dumps = dumps.of_process(str(job.settings.dumps), job.members[job.rank], job.host)
        self.dumps.add(self._steps)
        self._lock = threading.Lock()
        self._has_failed = False
        self._frames: tuple[Frame, ...] = ()
        """Frames of the error by which the job has failed here."""

    def close(self) -> None:
        """Remove the job's steps; idempotent."""
        with contextlib.suppress(ValueError):
            self.dumps.remove(self._steps)

    def demanded(self) -> None:
        """Write a dump, since another process has asked for it."""
        self.dumps.write("another rank or a user asked for it", failed=False)

    def goes_on(self, ranks: Sequence[int], lost: Sequence[int]) -> None:
        """Note that these ranks of an elastic job go on, and write a dump of the step that some of `lost` have not made, if any."""
        job = self._job
        if lost:
            who = ", ".join(f"rank {job.members[each]} on {job.hosts[each]}" for each in lost)
            were = "was" if len(lost) == 1 else "were"
            self.dumps.write(f"{who} {were} lost, and {len(ranks)} ranks go on", failed=False)
        self._members = tuple(job.members[each] for each in ranks)

    def failed(self, why: str, error: BaseException | None = None, *, asks: bool) -> None:
        """Write a dump, once, since the job fails here, by that error. `asks`: other ranks are to do so, too, and are waited for a
        while; those of an elastic job go on."""
        with self._lock:
            if self._has_failed:
                return
            self._has_failed = True
        if error is not None and error.__traceback__ is not None:
            self._frames = frames.of_error(error)
        self.dumps.write(why, failed=True)
        if asks and not self._job.elastic:
            with contextlib.closing(Observer(lambda: self._entry)) as observer:
                try:
                    _, lacking = demand(observer, own=self._job.rank)
                except RendezvousError as gone:
                    log.info("rank %d: other ranks are not asked for dumps: %s", self._job.rank, gone)
                else:
                    if lacking:
                        log.info("rank %d: no dumps of ranks %s", self._job.rank, lacking)

    def _steps(self) -> Calls:
        job = self._job
        at = self._frames or frames.of_thread(self._trains)
        return steps.calls_of(job.progress, self._members, job.settings.timeout_s, at)
