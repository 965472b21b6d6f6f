"""Buckets, programs, hooks and gates of a step, and their change when an epoch, a schedule or other members begin."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hocket import _native
from hocket.artefacts.plan import Plan
from hocket.errors import UsageError
from hocket.planning.sites import sites_of
from hocket.training.checkpoint import states
from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.framework import Gates
from hocket.training.memory.turns import SavedTurns, slots_for
from hocket.training.step.inside import Inside, behind
from hocket.training.step.memory import Memory
from hocket.training.step.statistics import Steps

if TYPE_CHECKING:
    from hocket.training.step.step import Step

log = logging.getLogger("hocket.training")


class Loading:
    """Programs that a step runs. `gates`: where forward waits for updates, if it does so bucket by bucket; `inside`: exchange of
    gradients inside sites, if sites step alone; `memory`: where sums lie; `process`: number of the one that loads them."""

    def __init__(self, step: Step, memory: Memory) -> None:
        """Begin without buckets."""
        self._step, self.memory = step, memory
        self.gates: Gates | None = None
        self.inside: Inside | None = None
        self.process = os.getpid()

    def load(self, *, moves: bool = True) -> None:
        """Load buckets, programs and hooks of the epoch in force. `moves`: gradients that are there move into the buckets; if not,
        they do with the next backward."""
        step, rank = self._step, self._step.job.rank
        old, before = step.buckets, step.launches
        step.owners.release()
        plan = step.plan
        step.commit.loads(plan)
        compiled = step.source.buckets()
        if together := bool(sites_of(plan)):
            compiled = behind(compiled)
        slots = slots_for(plan, len(compiled))
        step.place.lanes.serve(step.framework.device)
        placed = self.memory.placed(compiled, step.place, step.framework, slots, old)
        step.updates.place(placed, self.memory.sums(placed, step.framework))
        self._schedule(plan, anew=bool(old))
        self.end_inside()
        if together:
            self.inside = Inside(step, plan, compiled)
            step.accumulation.inside = self.inside.updates
        states.put(states.held(old, step.engine, rank), placed, step.engine, rank)
        for each in step.launches if step.commit.calls_libraries else ():
            if each.compiled.number is None:
                step.place.libraries.learn(each.program, each.compiled.program)
        step.source.loaded(plan, placed, step.launches, first=not old)
        self.count_gradients(moves=moves)
        step.owners.take(placed)
        for bucket in placed if old else ():
            step.owners.reduced(bucket)
        ended = [each for each in before if each not in step.launches]
        for each in ended:
            step.place.libraries.forget(each.program)
        bucket_memory.unload(ended, step.engine)
        step.place.loaded(step.source, placed)
        log.info(
            "rank %d: epoch %d begins, with plan %s", rank, step.source.epochs.current.number, plan.label
        )
        step.progress.planned(
            epoch=step.source.epochs.current.number,
            plan=plan.label,
            promise=plan.promise,
            buckets=tuple(
                (sum(each.elements for each in bucket.gradients), bucket.dtype) for bucket in placed
            ),
        )
        if step.delays is not None and old and step.updates.moves:
            step.updates.means.moved(step.buckets)

    @property
    def extra_bytes(self) -> int:
        """Bytes of memory beyond one slot for each bucket, with those of the anchor."""
        step = self._step
        held = [slot.memory for bucket in step.buckets for slot in bucket.others]
        if self.memory.apart:
            held += [slot.memory for own in step.updates.means.of for slot in own]
        inside = 0 if self.inside is None else self.inside.held_bytes
        return (
            sum(map(len, held)) + inside + step.framework.anchor.held_bytes + step.framework.local.held_bytes
        )

    def end_inside(self) -> None:
        """End the exchange of gradients inside sites, if there is one."""
        if self.inside is not None:
            self.inside.end()
        self.inside = self._step.accumulation.inside = None

    def check_process(self) -> None:
        """Raise UsageError in a child of the process that trains."""
        if os.getpid() != self.process:
            raise UsageError(
                "backward in a forked child of the process that distributed the model\n"
                "hint: train in the process that called `distribute`"
            )

    def gate(self) -> None:
        """Let forward wait for updates at gates of the loaded buckets."""
        step = self._step
        self.gates = step.framework.gate([each.names for each in step.buckets], step.wait_bucket, step.owners)

    def follow(self, placed: list[LoadedBucket]) -> None:
        """Go on with programs over the same memory, for other ranks of the job."""
        step = self._step
        step.updates.place(placed, self.memory.sums(placed, step.framework))
        self.count_gradients(after=step.updates.readiness)
        step.steps = Steps(step.engine, step.source)
        step.place.loaded(step.source, placed)

    def begin_anew(self) -> None:
        """Begin an epoch or another schedule, if one is to begin and all gradients were given."""
        step = self._step
        if not step.ends_turns:
            return
        if not step.updates.ready:
            step.updates.readiness.hold()
        elif step.agreement.begins:
            step.agreement.begins = False
            step.commit.epoch_begins(self.load)
            if self.gates is not None:
                self.gate()
        else:
            self._schedule(step.plan, anew=True)
            self.count_gradients()
            if step.updates.moves:
                step.updates.means.moved(step.buckets)

    def count_gradients(
        self,
        *,
        after: _native.Readiness | None = None,
        saved: tuple[SavedTurns, Sequence[int]] | None = None,
        moves: bool = True,
    ) -> None:
        """Count gradients by the loaded launches. `after`: turns that go on over the same memory; `saved`: others that go on;
        `moves`: see `load`."""
        step, updates = self._step, self._step.updates
        arena_of = updates.arena_of
        readiness = _native.Readiness(
            step.engine,
            [(each.program, len(each.compiled.ranges), arena_of[each.number]) for each in step.launches],
            step.on_first,
            updates.adopt,
            updates.twice,
            step.on_refused,
            updates.schedule,
            after,
            saved,
            made=None if step.framework.device is None else updates.made,
        )
        step.commit.counts(readiness)
        updates.count(readiness, moves=moves and after is None)
        if self.inside is not None:
            self.inside.count()
        if step.commit.calls_libraries:
            step.sent()
        step.accumulation.decide()

    def _schedule(self, plan: Plan, *, anew: bool) -> None:
        """Begin the turns of the plan's schedule that is to be used now."""
        step, schedule = self._step, plan.schedule
        if step.delays is not None:
            schedule = step.delays.schedule(plan, step.iteration, step.source.epochs.current.number)
        step.updates.begin(schedule, anew=anew)
        if step.delays is not None and step.watch is not None:
            step.delays.tell(step.watch, plan)
