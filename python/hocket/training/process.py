"""Place of this process in the job: it joins once, has one engine, and leaves when Python ends; models come and go.

The process leaves in order or with a reason: an uncaught exception is sent to the peers, whose waits would otherwise only report a
closed connection. A forked child (a data loader's worker) leaves its parent's job alone.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hocket import _native
from hocket.errors import Error, PeerError, RendezvousError, UsageError
from hocket.job import at_exit as ending
from hocket.job.cause import cause_of
from hocket.job.clock import ClockLog
from hocket.job.host import Host
from hocket.job.meeting import Publish
from hocket.job.rendezvous import LINGER_S, Job, join
from hocket.job.uncaught import described, uncaught
from hocket.job.usage import UsageLog
from hocket.libraries.service import Service
from hocket.members.arrival import arrive
from hocket.members.member_messages import Regroup
from hocket.members.membership import Membership
from hocket.parameter_server.choice import among_workers
from hocket.settings import Settings
from hocket.start.running import secret_of
from hocket.training.measurements import Measurements
from hocket.training.memory.device import Lanes
from hocket.training.prepared import Ahead, Furnish, Passage

log = logging.getLogger("hocket.training")

Come = Callable[[Settings, bytes, Membership, str], int | None]
"""How a process on a host comes to the meeting with ranks that train, given the job's secret: it returns how many of the job's
steps are in its state, or None."""


@dataclass(frozen=True)
class Within:
    """Part of another system's ranks that is a job.

    Attributes:
        name: name for people.
        environment: variables that give this process its number there.
        secret: secret on which its ranks have agreed.
        publish: way for rank 0 to publish an address to them.
    """

    name: str
    environment: Mapping[str, str]
    secret: bytes
    publish: Publish


class Process:
    """Joined job and, once a model needs it, the engine."""

    def __init__(
        self,
        settings: Settings,
        publish: Publish | None,
        come: Come | None = None,
        within: Within | None = None,
        furnish: Furnish | None = None,
    ) -> None:
        """Join; every rank must call this, and so must a process that is to join a job that trains. `come`: how the latter does
        that; default: it gets its state when all meet. `within`: the ranks of the job, if they are a part of another one's.
        `furnish`: see `Passage`."""
        self._membership: Membership | None = None
        self._engine: _native.Engine | None = None
        self.arrival = arrive(settings, secret_of)
        """Source of this process's place in the job."""
        self._settings = settings = self.arrival.placed(settings)
        self.passage = Passage(settings, self.abort, furnish)
        """Way to the ranks that this process meets next, if the job is elastic."""
        self.measurements = Measurements(self)
        self.is_member = False
        """True if a model of this process takes part in an elastic job."""
        self.steps: int | None = None
        """Number of steps in the state with which this process has come to a job that trains; None: it has none."""
        with contextlib.ExitStack() as undo:
            undo.callback(self.arrival.close)
            self.everyone: Job = (
                self._newcomer(come or _without_state)
                if settings.joins
                else join(settings, publish=publish, environment=self.arrival.environment)
                if within is None
                else join(
                    settings,
                    publish=within.publish,
                    environment=within.environment,
                    known_secret=within.secret,
                )
            )
            """Whole job, with parameter servers if there are any."""
            undo.pop_all()
        self.everyone.publish(self.generation, later=self.generation > 0)
        self.job = self.everyone
        """Job as ranks that train see it."""
        self._libraries: Service | None = None
        self._lanes: Lanes | None = None
        self.traced = False
        """True if a model's trace is written: only one model has a trace."""
        self.gave_up: str | None = None
        """Reason that this rank gave the others for its end; None: it has given none."""
        self.serves = False
        """True if ranks that do not train serve or help a model of this process: one at a time."""
        self.trainings = 0
        """Number of models that they have served or helped, with that one."""
        self.besides: tuple[int, Literal["serve", "help"]] | None = None
        """How many ranks train since the first model, and what others do, if there are any; None: there was no model."""
        if self.everyone.server is not None:
            self.everyone.server.on_failure(self._end_without_store)
        self._owner = os.getpid()
        self._closers: list[Callable[[], None]] = []
        uncaught.tell(self._on_exception)
        atexit.register(self._end)

    @property
    def engine(self) -> _native.Engine:
        """Engine, connected to all ranks; the first use connects, on every rank."""
        if self._engine is None:
            # Ranks that train wait for a newcomer that hangs no longer than for one that hangs later.
            connect_s = self._settings.silence_max_s(elastic=True) if self.generation else None
            self._engine = self.everyone.engine(
                elastic=self.elastic, trace=self.passage.trace, connect_timeout_s=connect_s
            )
            if self.generation == 0 and self._settings.trace is not None:
                self._log_beside(Path(self._settings.trace))
        return self._engine

    @property
    def generation(self) -> int:
        """Number of times that the ranks of an elastic job have met anew."""
        return self.passage.generation

    @property
    def elastic(self) -> bool:
        """True if the job goes on without ranks that it loses."""
        return self.everyone.elastic

    @property
    def is_newcomer(self) -> bool:
        """True if the process has come to a job that trained already."""
        return self._settings.joins and not self.is_member

    @property
    def membership(self) -> Membership:
        """Part of this process in an elastic job, which `begin` begins. RendezvousError: the coordinator cannot be reached."""
        if self._membership is None:
            job = self.everyone
            who = f"rank {job.rank} on {job.host}"
            self._membership = Membership(job.settings, job.secret, who, self.arrival)
            self.passage.begin(self._membership)
        return self._membership

    def begin(self, *, steps: int = 0) -> None:
        """Take part in an elastic job from step number `steps` on. All ranks that have met call this when they are ready."""
        self.membership.begin(self.everyone, self.engine, generation=self.generation, steps=steps)
        self.is_member = True

    def meet(self, order: Regroup) -> None:
        """Leave the ranks with which this one has trained, and meet those of the next generation: with most of them, once more.

        RendezvousError: some do not come.
        """
        for each in (self._libraries, self._lanes):
            if each is not None:
                each.close()
        self.passage.leaves(self._engine, self.everyone)
        self._engine = self._libraries = self._lanes = None
        self.measurements = Measurements(self)
        self.everyone = self.job = self._met(order)
        self.everyone.publish(self.generation, later=True)

    def next_meeting(self, after: int, error: Error) -> Regroup:
        """Wait until generation `after`, which could not meet, meets once more. If it does not, raise `error`, this rank's."""
        if isinstance(error, RendezvousError | PeerError) and error.missing:
            self.membership.could_not_meet(after, error.missing)
        try:
            return self.membership.next_meeting(after, error.summary)
        except RendezvousError as none:
            raise error from none

    def _met(self, order: Regroup) -> Job:
        place = self.passage.to(self.membership, order)
        if not isinstance(place, Ahead):
            return place
        self._engine, self.measurements = place.engine, place.measurements
        return place.job

    def _newcomer(self, come: Come) -> Job:
        """Join a job that trains. UsageError: no setting says which job. RendezvousError: it does not take this process."""
        settings = self._settings
        if settings.coordinator is None or settings.secret is None:
            raise UsageError(
                "HOCKET_JOINS=1, without HOCKET_COORDINATOR and HOCKET_SECRET of a job\nhint: `hocket join` sets all three"
            )
        host = Host.here(settings.host).name
        secret, who = bytes.fromhex(settings.secret), f"process {os.getpid()} on {host}"
        if gc.isenabled():
            # Python's next full collection, which looks through all that was imported, would come in one of the first steps, and
            # keep all ranks waiting. Now nobody waits.
            gc.collect()
        self._membership = Membership(settings, secret, who, self.arrival)
        self.passage.begin(self._membership)
        try:
            self.steps = come(settings, secret, self._membership, host)
            order = self._membership.joining.meeting(who)
            while True:
                try:
                    return self._met(order)
                except RendezvousError as error:
                    if error.rank == order.members.index(self._membership.number) and not error.missing:
                        # The other ranks have no fault: they meet again without this one.
                        raise
                    order = self.next_meeting(order.generation, error)
        except BaseException:
            self._membership.close()
            raise

    def _log_beside(self, trace: Path) -> None:
        """Log memory and processor use, and the clock: where ranks have several clocks, the lowest rank of each reads it."""
        job = self.everyone
        self.also_close(UsageLog(trace, job.rank).close)
        if len(set(job.clocks)) > 1 and job.clocks[job.rank] == job.rank:
            self.also_close(ClockLog(job.store, trace, job.rank).close)

    def train_among(self, workers: int, does: Literal["serve", "help"]) -> None:
        """Train on this rank; `does`: what ranks from `workers` on do, if there are any."""
        self.besides = workers, does
        if workers < self.everyone.world:
            self.job = among_workers(self.everyone, workers)

    @property
    def libraries(self) -> Service:
        """Runner of the library collectives of all models' policies."""
        if self._libraries is None:
            self._libraries = Service(self.job, self.engine, self.abort, self.lanes.lent)
        return self._libraries

    @property
    def lanes(self) -> Lanes:
        """Threads that copy between the host and the devices of all models."""
        if self._lanes is None:
            self._lanes = Lanes(self.engine, self.abort)
        return self._lanes

    @property
    def mine(self) -> bool:
        """True if this is not a forked child of the process that joined."""
        return os.getpid() == self._owner

    def abort(self, reason: str, error: BaseException | None = None) -> None:
        """Tell all ranks why this one gives up, and because of which other rank if `error`, or its cause, names one."""
        self.gave_up = self.gave_up or reason
        cause = None if error is None else cause_of(error, self.everyone.rank)
        if self.everyone.failing is not None:
            self.everyone.failing.failed(reason, error, asks=cause is not None)
        if self._membership is not None:
            self._membership.close()
        self.arrival.close()
        if self._engine is not None:
            self._engine.abort(reason, cause)
        self.everyone.close(reason, cause)

    def _end_without_store(self, why: str) -> None:
        """End, in the thread that served the store: it answers nobody any more, and ranks that train may never ask."""
        if self._engine is not None:
            self._engine.abort(why)

    def also_close(self, closer: Callable[[], None]) -> None:
        """Register a function to call before this process leaves the job."""
        self._closers.append(closer)

    def no_longer_close(self, closer: Callable[[], None]) -> None:
        """Unregister a function whose object has ended before."""
        self._closers.remove(closer)

    def close(self) -> None:
        """Leave in order; idempotent. PeerError: the others have gone on without this rank's last step."""
        self._close(at_exit=False)

    def _close(self, *, at_exit: bool) -> None:
        if self.mine:
            atexit.unregister(self._end)
            uncaught.forget(self._on_exception)
            closers, self._closers = self._closers, []
            try:
                for closer in closers:
                    closer()
            finally:
                self._leave(at_exit)

    def _leave(self, at_exit: bool) -> None:
        for each in (self._libraries, self._lanes):
            if each is not None:
                each.close()
        if self._membership is not None:
            self._membership.close()
        self.arrival.close()
        self.passage.end()
        blamed = None if self._engine is None else self._engine.blamed
        if blamed is not None and self.everyone.failing is not None:
            self.everyone.failing.failed(str(blamed), asks=True)
        try:
            if self._engine is not None:
                self._engine.close(at_exit=at_exit)
        except PeerError as error:
            if error.rank != self.everyone.rank:
                raise
            # For example a callback that failed at the end: nothing that others still wait for.
            log.warning("%s; what was trained is complete", error)
        finally:
            # A script may end in order because of an error that it has caught.
            cause = None if blamed is None else cause_of(blamed, self.everyone.rank)
            self.everyone.close(cause=cause, linger_s=ending.LINGER_S if at_exit else LINGER_S)

    def _end(self) -> None:
        """Close as Python ends. An error raised now would not change its exit code."""
        # A member of an elastic job is not to be waited for, and its launcher knows how it ends.
        at_exit = ending.process_ends() and self.gave_up is None and not self.elastic
        try:
            self._close(at_exit=at_exit)
        except PeerError as error:
            if not (self.mine and self.elastic):
                raise
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

    def _on_exception(self, error: BaseException) -> None:
        # The error has been printed: in an elastic job, others that hear that this rank ends do not leave it the time for that.
        if self.mine:
            self.abort(described(error), error)


def _without_state(settings: Settings, _secret: bytes, membership: Membership, host: str) -> None:
    membership.joining.knock(host, settings.member)
    membership.joining.ready()


@contextlib.contextmanager
def reporting(process: Process) -> Iterator[None]:
    """Tell all ranks of an error in the body: they would wait for this one."""
    try:
        yield
    except BaseException as error:
        process.abort(f"{type(error).__name__}: {error}", error)
        raise


_joined: Process | None = None
_of: str | None = None
"""Name of the ranks of that job, if they are a part of another one's."""


def joined(
    settings: Settings,
    publish: Publish | None = None,
    come: Come | None = None,
    within: Within | None = None,
    furnish: Furnish | None = None,
) -> Process:
    """Return the process's place; join on first use, and again in a forked child, or after it gave up a job in which it was alone.
    `publish`: see `launch.rendezvous.join`; `come`, `within`, `furnish`: as `Process` has them.

    UsageError: the process gave up a job with others, or is in another one.
    """
    global _joined, _of  # noqa: PLW0603  # a process has one place in one job, whatever models it trains
    if _joined is not None and _joined.mine and _joined.gave_up is not None:
        if _joined.everyone.server is None or _joined.everyone.world > 1:
            raise UsageError(
                f"rank {_joined.everyone.rank} has left its job: {_joined.gave_up}\nhint: start the job again"
            )
        # In a notebook, the next cell is to work.
        _joined.close()
        _joined = None
    wanted = None if within is None else within.name
    if _joined is None or not _joined.mine:
        _joined, _of = Process(settings, publish, come, within, furnish), wanted
    if _of != wanted:
        raise UsageError(
            f"this process is in the job of {_of or 'all ranks'}, and cannot be in that of {wanted or 'all ranks'} too\n"
            "hint: one group for all models of a process"
        )
    return _joined


def leave(reason: str | None = None) -> None:
    """Leave the job, if this process is in one, in order or with a reason for the peers. Then it may join another job.

    For processes that outlive a job, such as actors; others leave as they end.
    """
    global _joined  # as above
    if _joined is None or not _joined.mine:
        return
    place, _joined = _joined, None
    if reason is not None:
        place.abort(reason)
    place.close()
