"""Job and engine of an elastic job's members that are to meet: made when they do, or beside training before that."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from hocket import _native
from hocket.errors import UsageError
from hocket.job.rendezvous import Job, join
from hocket.members.member_messages import Prepares
from hocket.members.membership import Membership
from hocket.settings import Settings


@dataclass(frozen=True)
class Prepared:
    """Job of ranks that have not met yet, and its connected engine."""

    job: Job
    engine: _native.Engine

    def close(self) -> None:
        """Give them up."""
        self.engine.close()
        self.job.close()


def job_of(settings: Settings, number: int, members: Sequence[int], store: str) -> Job:
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


def prepare(settings: Settings, membership: Membership, order: Prepares) -> Prepared:
    """Find others beside training, and connect to them.

    RendezvousError: some do not come. UsageError: a trace is written, which has a part for each generation that meets.
    """
    if settings.trace is not None or order.store is None:
        raise UsageError("a trace is written: what ranks prepare beside training is in no part of it")
    brief = dataclasses.replace(settings, start_timeout_s=settings.silence_max_s(elastic=True))
    job = job_of(brief, membership.number, order.members, order.store)
    try:
        engine = job.engine(elastic=True)
    except BaseException:
        job.close()
        raise
    here = dataclasses.replace(job.settings, start_timeout_s=settings.start_timeout_s)
    return Prepared(dataclasses.replace(job, settings=here), engine)
