"""Job and engine of an elastic job's members that are to meet: made when they do, or beside training before that, and then with
what they train with."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from hocket import _native
from hocket.errors import Error, PeerError, RendezvousError, UsageError
from hocket.job.rendezvous import Job, join
from hocket.members.member_messages import Prepares, Regroup
from hocket.members.membership import Membership
from hocket.settings import Settings
from hocket.training.measurements import Measurements

log = logging.getLogger("hocket.training")


class Stay(Protocol):
    """Place of this process among ranks that have met, as the choice of their programs sees it: a `Process`, or one `Ahead`.

    Attributes:
        measurements: measurements by which the ranks decide.
    """

    measurements: Measurements

    @property
    def generation(self) -> int:
        """Return the number of times that the ranks of an elastic job have met anew."""

    @property
    def job(self) -> Job:
        """Return the job as ranks that train see it."""

    @property
    def everyone(self) -> Job:
        """Return the job of all ranks."""

    @property
    def engine(self) -> _native.Engine:
        """Return the engine, connected to all ranks."""

    @property
    def elastic(self) -> bool:
        """Return whether the job goes on without ranks that it loses."""

    def abort(self, reason: str, error: BaseException | None = None) -> None:
        """Tell all ranks why this one gives up."""


class Ahead:
    """Place among ranks that are to meet, of the `generation` that they will be."""

    elastic = True

    def __init__(
        self,
        job: Job,
        engine: _native.Engine,
        generation: int,
        abort: Callable[[str, BaseException | None], None],
    ) -> None:
        """Be there with a connected engine. `abort`: as of `Stay`."""
        self.job = self.everyone = job
        self.engine, self.generation, self._abort = engine, generation, abort
        self.measurements = Measurements(self)

    def abort(self, reason: str, error: BaseException | None = None) -> None:
        """Tell all ranks why this one gives up."""
        self._abort(reason, error)

    def close(self) -> None:
        """Leave in order, and forget the engine: cycles may keep what was made for this place until Python's next full collection,
        and an engine has memory as large as the model."""
        engine = self.engine
        del self.engine
        try:
            engine.close()
        finally:
            self.job.close()


Furnish = Callable[[Ahead], Any]
"""Signature of what prepares training at a place, alike on all ranks; it returns None where that is not possible."""


@dataclass(frozen=True)
class Prepared:
    """Place among ranks that have not met yet. `training`: what was prepared to train there, if anything."""

    place: Ahead
    training: Any

    def close(self) -> None:
        """Give them up."""
        self.place.close()


class Passage:
    """Way of a process from the ranks with which it trains to those that it meets next.

    Attributes:
        generation: number of times that the ranks of an elastic job have met anew.
        furnish: what prepares training with others beside training; None: nothing does.
        training: what was prepared to train where this process is now, if anything.
    """

    def __init__(
        self,
        settings: Settings,
        abort: Callable[[str, BaseException | None], None],
        furnish: Furnish | None,
    ) -> None:
        """Begin with the job. `abort`: as of `Stay`."""
        self._settings, self._abort, self.furnish = settings, abort, furnish
        self.generation = 0
        self.training: Any = None
        self._place: Ahead | None = None
        """Where this process is now, if that was prepared."""
        self._former: list[_native.Engine | Job | Ahead] = []
        """Connections and jobs that end with the generation before."""

    @property
    def trace(self) -> Path | None:
        """Directory of the trace: each generation after the first has its own."""
        if self._settings.trace is None or self.generation == 0:
            return None
        return Path(self._settings.trace) / f"generation-{self.generation}"

    def begin(self, membership: Membership) -> None:
        """Let a member prepare."""
        membership.preparing.make = partial(self._prepare, membership)

    def to(self, membership: Membership, order: Regroup) -> Ahead | Job:
        """Go where the members of the next generation meet, with what was prepared there, or to their job alone. RendezvousError:
        some do not come."""
        self.generation, self.training, self._place = order.generation, None, None
        prepared = membership.preparing.take(order)
        if isinstance(prepared, Prepared):
            self.training, self._place = prepared.training, prepared.place
            return prepared.place
        return _job_of(self._settings, membership.number, order.members, order.store)

    def leaves(self, engine: _native.Engine | None, job: Job) -> None:
        """Note what is no longer used: nobody waits for its end, which `end` brings."""
        self.end()
        if self._place is not None:
            self._former = [self._place]
        else:
            self._former = [job] if engine is None else [engine, job]
        if job.reports is not None:
            job.reports.end_dumps()

    def end(self) -> None:
        """Leave the ranks of the generation before, in order; idempotent. In any thread."""
        former, self._former = self._former, []
        for each in former:
            # Whatever happened among them concerns nobody any more.
            with contextlib.suppress(PeerError):
                each.close()

    def settle(self, job: Job) -> None:
        """Do what was put off until ranks have made a step of this job: report of it, and, in a thread, leave the ranks before."""
        if job.reports is not None:
            job.reports.begin(job)
        if self._former:
            threading.Thread(target=self.end, name="hocket-leaves", daemon=True).start()

    def _prepare(self, membership: Membership, order: Prepares) -> Prepared:
        """Find others beside training, connect to them, and prepare what can be known of training with them.

        RendezvousError: some do not come. UsageError: a trace is written, which has a part for each generation that meets.
        """
        settings = self._settings
        if settings.trace is not None or order.store is None:
            raise UsageError("a trace is written: what ranks prepare beside training is in no part of it")
        brief = dataclasses.replace(settings, start_timeout_s=settings.silence_max_s(elastic=True))
        job = _job_of(brief, membership.number, order.members, order.store)
        with contextlib.ExitStack() as undo:
            undo.callback(job.close)
            engine = job.engine(elastic=True)
            undo.callback(engine.close)
            place = Ahead(job, engine, order.generation, self._abort)
            training = None if self.furnish is None else _furnished(place, self.furnish)
            undo.pop_all()
        # This very object: what was prepared refers to it.
        job.settings = dataclasses.replace(job.settings, start_timeout_s=settings.start_timeout_s)
        return Prepared(place, training)


def _job_of(settings: Settings, number: int, members: Sequence[int], store: str) -> Job:
    """Return the job of these members, of which this one has that number, when all have come to the store."""
    here = dataclasses.replace(
        settings,
        rank=members.index(number),
        world=len(members),
        local_rank=None,
        local_world=None,
        store=store,
        store_served=True,
    )
    return dataclasses.replace(join(here, environment={}), members=tuple(members))


def _furnished(place: Ahead, furnish: Furnish) -> Any:
    """Return what is prepared to train, or None: then it is made when all have met, where a mistake is told, too."""
    try:
        return furnish(place)
    except RendezvousError:
        raise
    except Exception as error:  # of any kind: others wait for the answer
        text = error.summary if isinstance(error, Error) else f"{type(error).__name__}: {error}"
        log.info("no programs are prepared beside training to meet others: %s", text)
        return None
