"""How ranks join a job that trains: between two steps, all of its ranks meet anew, as at the start of a job, and with them those
that have come. These get their state from those that were there before.

What a script does between the optimizer's step and its next forward, such as a step of its schedulers, comes after that. So the
script's own state, and the numbers of the optimizer that schedulers change, go to the newcomers at the next forward.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Struct

from hocket.artefacts.promise import Promise
from hocket.errors import Error, UsageError
from hocket.launch.frames import FRAME_BYTES_MAX
from hocket.launch.member_messages import Regroup
from hocket.launch.rendezvous import Job
from hocket.settings import Settings
from hocket.training.companion import MembersCompanion
from hocket.training.elastic.session import ElasticSession
from hocket.training.framework import Framework
from hocket.training.loop import Loop, SavedLoop
from hocket.training.process import Process
from hocket.training.source import ProgramSource
from hocket.training.start import go_on_in, prepare

MakeCompanion = Callable[[Process], MembersCompanion]


class Standing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a job is when others join: so many steps, and the place in its data."""

    steps: int
    loop: SavedLoop


class Late:
    """What newcomers get at the first forward: bytes that `get` makes on ranks that were there before, and `put` takes."""

    def __init__(self, get: Callable[[], bytes], put: Callable[[bytes], None]) -> None:
        """Nobody has come yet."""
        self._get, self._put = get, put
        self._job: Job | None = None
        self._new = False

    def awaited(self, job: Job, *, new: bool) -> None:
        """Ranks of this job have just met. `new`: this one was not there before."""
        self._job, self._new = job, new

    def exchange(self) -> None:
        """The first forward since then; all ranks call it. RendezvousError: some do not come."""
        job, self._job = self._job, None
        if job is None:
            return
        mine = None if self._new else base64.b64encode(self._get()).decode()
        if mine is not None and len(mine) > FRAME_BYTES_MAX // 2:
            raise UsageError(
                f"the state that hk.extra_state registers takes {len(mine)} bytes, too much for ranks that join\n"
                f"hint: at most {FRAME_BYTES_MAX // 2}; keep tensors in the model's buffers or the optimizer's state"
            )
        everyone = job.store.gather(
            "late state", job.rank, job.world, mine, job.settings.timeout_s, without_lost=True
        )
        given = next((each for each in everyone if each is not None), None)
        if self._new and given is not None:
            self._put(base64.b64decode(given))


def met(
    framework: Framework,
    *,
    process: Process,
    settings: Settings,
    promise: Promise | None,
    standing: Standing | None,
) -> tuple[ProgramSource, Standing]:
    """All that have met call it: where programs come from, and where the job is, which ranks that were there before know.

    RendezvousError: a newcomer's model is another one, or some do not come.
    """
    job = process.job
    mine: Any = None if standing is None else msgspec.to_builtins(standing)
    given = job.store.gather("standing", job.rank, job.world, mine, job.settings.start_timeout_s)
    source = prepare(
        framework,
        plan=None,
        policy=None,
        promise=promise,
        process=process,
        settings=settings,
        holders=[rank for rank, each in enumerate(given) if each is not None],
    )
    return source, msgspec.convert(next(each for each in given if each is not None), Standing)


def meeting(
    session: ElasticSession,
    framework: Framework,
    *,
    process: Process,
    settings: Settings,
    promise: Promise | None,
    loop: Loop,
    late: Late,
    companion: MakeCompanion,
) -> Callable[[Regroup], None]:
    """How a rank that trains meets those that join. If one of them is lost meanwhile, the others meet once more."""

    def once(order: Regroup) -> None:
        process.meet(order)
        standing = Standing(steps=session.iteration, loop=loop.saved()[0])
        source, _ = met(framework, process=process, settings=settings, promise=promise, standing=standing)
        go_on_in(session, source, process=process, companion=companion(process))
        late.awaited(process.job, new=False)

    def until_it_works(order: Regroup) -> None:
        while True:
            try:
                return once(order)
            except Error as error:
                order = process.next_meeting(order.generation, error)

    return until_it_works
