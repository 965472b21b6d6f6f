"""Joining of ranks to a job that trains: between two steps, all of its ranks and the joining ones meet anew, as at the start of a
job. Newcomers that could not take the state beside training (`elastic.fetching`) get it then, from ranks that were there before.

A script's work between the optimizer's step and its next forward, such as a step of its schedulers, comes after that. So the
script's own state, and the optimizer's numbers that schedulers change, go to the newcomers at the next forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct

from hocket import typed
from hocket.artefacts.local import every, shortened
from hocket.artefacts.plan import Plan
from hocket.errors import Error, RendezvousError, UsageError
from hocket.job.store.frames import FRAME_BYTES_MAX
from hocket.members.member_messages import Regroup
from hocket.planning.seconds import updates
from hocket.settings import Settings
from hocket.training.assemble.asked import Given
from hocket.training.assemble.furnish import Furnished, Terms, furnish, source_by
from hocket.training.assemble.start import go_on_in
from hocket.training.checkpoint import states
from hocket.training.checkpoint.replicate import copy, copy_saved, near, replicate
from hocket.training.elastic.commit import Members
from hocket.training.loop.loop import Loop, SavedLoop
from hocket.training.memory.framework import Framework
from hocket.training.memory.gradients import agree, digest_of, gradients_of
from hocket.training.memory.state_parts import StateParts
from hocket.training.process import Process
from hocket.training.programs.source import ProgramSource
from hocket.training.step.apart import Laid
from hocket.training.step.companion import MembersCompanion
from hocket.training.step.reducing import ReducingSession

STATE_BYTES_MAX = FRAME_BYTES_MAX // 2
"""Largest state in bytes: a frame has it as text, which is a third longer."""

SEARCH_S_MIN = 0.1
"""Least seconds for which a search goes on after a meeting."""

MakeCompanion = Callable[[Process], MembersCompanion]


class Standing(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State of a job when others join: its number of steps, place in its data, and terms."""

    steps: int
    loop: SavedLoop
    terms: Terms


class Here(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Knowledge of a rank at a meeting: the job's state, or, if it joins, how many of the job's steps are in its own, if any; a
    digest of its model; and whether it has made programs and memory before."""

    standing: Standing | None
    steps: int | None
    model: str
    furnished: bool


class Met(NamedTuple):
    """Result of a meeting: the source of programs, memory for its first ones if that was made before, the state of the job, and the
    ranks that had its state before. `current`: the others have it, too."""

    source: ProgramSource
    ahead: Laid | None
    standing: Standing
    holders: Sequence[int]
    current: bool


class Late:
    """State that newcomers get at the first forward: bytes that `get` makes on ranks that were there before, and `put` takes."""

    def __init__(self, get: Callable[[], bytes], put: Callable[[bytes], None]) -> None:
        self._get, self._put = get, put
        self._process: Process | None = None
        self._holders: Sequence[int] = ()

    def awaited(self, process: Process, holders: Sequence[int]) -> None:
        """Note that the ranks of this job have just met, of which `holders` were there before."""
        self._process, self._holders = process, holders

    def exchange(self) -> None:
        """Exchange the state at the first forward after a meeting; all ranks call it.

        RendezvousError: no rank that was there before comes to its forward in time. UsageError: the state is too large.
        """
        process, self._process = self._process, None
        if process is None:
            return
        job = process.job
        if job.rank in self._holders:
            state = self._get()
            if len(state) > STATE_BYTES_MAX:
                raise UsageError(
                    f"the state that hk.extra_state registers takes {len(state)} bytes, too much for ranks that join\n"
                    f"hint: at most {STATE_BYTES_MAX}; keep tensors in the model's buffers or the optimizer's state"
                )
            process.membership.handover.give(process.generation, state)
            return
        timeout_s = job.settings.with_another_launcher_s(job.settings.timeout_s)
        holders = [job.members[rank] for rank in self._holders]
        given = process.membership.handover.take(process.generation, holders, timeout_s)
        if given is not None:
            self._put(given)


def met(
    framework: Framework,
    parts: StateParts,
    *,
    process: Process,
    settings: Settings,
    asked: Given,
    standing: Standing | None,
) -> Met:
    """Prepare training among all ranks that have met; all of them call it. `parts`: the state, which newcomers may have already;
    `standing`: as ranks that were there before know it.

    RendezvousError: a newcomer's model or policy is another one, or some do not come.
    """
    job, parameters = process.job, framework.parameters()
    furnished: Furnished | None = process.passage.training
    ours = Here(
        standing=standing,
        steps=process.steps if standing is None else None,
        model=digest_of(parameters),
        furnished=furnished is not None,
    )
    mine: Any = msgspec.to_builtins(ours)
    given = job.store.gather("standing", job.rank, job.world, mine, job.settings.start_timeout_s)
    everyone = typed.of_builtins(given, list[Here])
    known = {rank: each.standing for rank, each in enumerate(everyone) if each.standing is not None}
    holders, now = list(known), next(iter(known.values()))
    current = all(each.standing is not None or each.steps == now.steps for each in everyone)
    if asked.policy_name != now.terms.policy:
        raise RendezvousError(
            f"rank {job.rank} on {job.host} comes with {_named(asked.policy_name)}, and the job trains with "
            f"{_named(now.terms.policy)}\n"
            "hint: give `distribute`, or HOCKET_POLICY, what the job's other ranks have",
            rank=job.rank,
        )
    if any(each.model != everyone[0].model for each in everyone):
        agree(parameters, job)
    # All have made theirs by the same terms, or none has.
    all_have = all(each.furnished for each in everyone)
    source, ahead = furnished.at(now.terms) if furnished is not None and all_have else (None, None)
    if source is None:
        source = source_by(now.terms, gradients_of(parameters), asked, process, settings)
    plan = now.terms.plan
    owned = plan is not None and any(map(updates, plan.buckets))
    held = 0 if owned else parts.arrays if current else None
    replicate(framework, job, process.engine, holders, held=held)
    return Met(source, ahead, now, holders, current)


def _searches(source: ProgramSource) -> str | None:
    """Return the time that is left for the job's search; None: there is none, or it has ended."""
    left_s = None if source.autopilot is None else source.autopilot.knowledge.search_s
    return f"{left_s:.1f}s" if left_s is not None and left_s >= SEARCH_S_MIN else None


def _in_force(plan: Plan | None, session: ReducingSession) -> Plan | None:
    """Return a plan that was given by which ranks step alone, with the schedule to which they may have retreated."""
    if plan is None or session.updates.local is None:
        return plan
    return msgspec.structs.replace(plan, schedule=session.updates.schedule)


def _named(policy: str | None) -> str:
    return "no policy" if policy is None else f"policy {policy}"


def share_states(session: ReducingSession, commit: Members, found: Met, parts: StateParts) -> None:
    """Give newcomers the state that policies keep alike on all ranks, and that of the outer optimizer of ranks that step alone; a
    rank's own begins at zero. All that have met call it.

    RendezvousError: some do not come.
    """
    job, holders = session.job, found.holders
    sources = near(holders, job.hosts)
    others = [rank for rank in range(job.world) if rank not in holders]
    alone = session.updates.local
    session.owners.share()
    if found.current:
        parts.hand_over()
    elif alone is not None and alone.outer.momentum:
        local = session.framework.local
        saved = local.saved().tobytes() if job.rank in sources else b""
        copied = copy_saved(saved, "outer optimizer", job, session.engine, sources=sources, targets=others)
        if copied:
            local.restore(np.frombuffer(copied, np.uint8), apart=False)
    own = states.held(session.buckets, session.engine, job.rank).shared_only()
    rows = [each.rows.reshape(-1) for each in own.parameters] + [
        each.rows.reshape(-1) for each in own.buckets
    ]
    if rows:
        copy(rows, "state of policies", job, session.engine, sources=sources, targets=others)
        commit.standing.keep()


def meeting(
    session: ReducingSession,
    commit: Members,
    framework: Framework,
    parts: StateParts,
    *,
    process: Process,
    settings: Settings,
    asked: Given,
    loop: Loop,
    late: Late,
    companion: MakeCompanion,
) -> Callable[[Regroup], None]:
    """Return the callback by which a training rank meets joining ones. If one is lost meanwhile, the others meet once more."""

    def terms() -> Terms:
        current = session.source.epochs.current
        return Terms(
            plan=_in_force(asked.plan, session),
            policy=asked.policy_name,
            local=None if asked.local is None else shortened(asked.local, every(session.updates.schedule)),
            begin=(current.number, dict(current.agreed)),
            search=_searches(session.source),
        )

    def once(order: Regroup) -> None:
        process.meet(order)
        standing = Standing(steps=session.iteration, loop=loop.saved()[0], terms=terms())
        found = met(framework, parts, process=process, settings=settings, asked=asked, standing=standing)
        go_on_in(
            session, commit, found.source, process=process, companion=companion(process), ahead=found.ahead
        )
        share_states(session, commit, found, parts)
        process.begin(steps=session.iteration)
        commit.met(found.holders)
        commit.after_step = partial(process.passage.settle, process.everyone)
        late.awaited(process, found.holders)

    def until_it_works(order: Regroup) -> None:
        while True:
            try:
                return once(order)
            except Error as error:
                order = process.next_meeting(order.generation, error)

    process.passage.furnish = partial(furnish, framework, asked, terms)
    return until_it_works
