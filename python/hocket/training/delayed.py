"""A model whose updates are of several iterations, or of earlier ones, as a plan's schedule says.

A turn sums the gradients of its iterations in one slot of its buckets' memory, by backward itself. While it travels, the next turn
fills the other slot. At the end of each backward, what is due is awaited: those gradients are the turn's mean, all others are None,
so that the optimizer leaves their parameters alone. Which turn is applied when follows from the plan alone, so that two runs give
the same bits.

A session begins with synchronous updates, from which a sentinel learns how large they are. When later ones grow out of that, the
session goes on synchronously, from the same iteration on all ranks.

Votes are counted at the end of the next backward, before the next ones are cast; in the same backward only where a turn is due that
ends with it. So ranks wait for nothing but what is due.
"""

from __future__ import annotations

import contextlib
import logging
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hocket import _native
from hocket.artefacts.plan import Schedule
from hocket.errors import PeerError, UsageError
from hocket.planning.walk import rate_factor
from hocket.training import buckets as bucket_memory
from hocket.training.buckets import CompiledBucket, LoadedBucket
from hocket.training.framework import Framework
from hocket.training.reducing import ReducingSession
from hocket.training.sentinel import Watch
from hocket.training.turns import Table, Turn, Turns, is_synchronous, table
from hocket.training.values import squared_norm

log = logging.getLogger("hocket.delays")


class DelayedSession(ReducingSession):
    """Turns of buckets instead of a launch in every iteration."""

    counted_in = "launch"

    def __init__(self, framework: Framework, **given: Any) -> None:
        """As `ReducingSession`."""
        self._shown: dict[int, LoadedBucket] = {}
        self._made = self._applied = 0
        # Means were shown, and the optimizer has not stepped since.
        self._awaits_step = False
        self._ends = self._retreats = False
        self._norms2: dict[int, float] = {}
        # Nothing that the plan's schedule changes, nothing to watch.
        planned = given["source"].plan(given["source"].epochs.current).schedule
        watches = given["job"].settings.sentinel and not is_synchronous(planned)
        self.sentinel = Watch("the norm of applied gradients") if watches else None
        super().__init__(framework, **given)
        framework.rates({})

    @property
    def counts(self) -> tuple[int, int]:
        """Iterations whose gradients were made, and of how many all were applied."""
        return self._made + self.turns.made, self._applied + self.turns.applied

    @property
    def retreated(self) -> bool:
        """Whether the sentinel has ended merged and late updates."""
        return self._retreats

    def zero_grad(self) -> None:
        """What was applied becomes zero; what is summed goes on."""
        for bucket in self._shown.values():
            self.framework.zero(bucket)
        self._shown = {}
        for bucket in self._open():
            self.framework.show(bucket)

    def flush(self) -> None:
        """All that was made and not applied is reduced, awaited and applied; the optimizer steps once for each update."""
        if self._awaits_step:
            raise UsageError(
                "flush: the last backward's gradients were not applied\nhint: optimizer.step() first"
            )
        if self.turns.counts:
            self._count()
        # What the last step applied may still be there.
        self.zero_grad()
        rounds = self.turns.flush()
        with self._naming_the_finished():
            self.readiness.flush()
        for due in rounds:
            self._show(due)
            self.framework.step()
            self.zero_grad()
        self._begin_anew()

    def joinable(self) -> ReducingSession:
        """UsageError: turns of ranks that have finished cannot be completed."""
        raise UsageError(
            "join: gradients are merged or late, and a rank that has finished would leave turns of the others open\n"
            "hint: give every rank the same number of batches, or use a plan without merged or late gradients"
        )

    def close(self) -> None:
        """Wait for what is on its way, as others need our part of it; say what is not applied."""
        # Where the job has failed, that was said already.
        with contextlib.suppress(PeerError):
            if self.turns.counts:
                self._votes.count(self.job.settings.timeout_s)
            for number in range(len(self.launches)):
                _, launched, applied = self.readiness.progress(number)
                for _ in range(applied, launched):
                    self.readiness.wait(number, self.job.settings.timeout_s)
                    self.readiness.applied(number)
        made, applied = self.counts
        if applied < made and self.job.rank == 0:
            warnings.warn(
                f"gradients of the last {made - applied} of {made} iterations were made and not applied\n"
                "hint: hk.flush(model) after the last step, on all ranks",
                RuntimeWarning,
                stacklevel=2,
            )
        super().close()

    def _placed(self, buckets: Sequence[CompiledBucket], epoch: int) -> list[LoadedBucket]:
        planned = self.source.plan(self.source.epochs.current).schedule
        slots, _ = table(planned, len(buckets))
        array = self.framework.array
        placed = bucket_memory.load(buckets, self.engine, array, epoch=epoch, rank=self.job.rank, slots=slots)
        # What an arena's gradients are while they are due: other arrays than those that backward adds to.
        self._means = [[bucket_memory.again(slot, array) for slot in bucket.slots] for bucket in placed]
        self._due_views = {
            name: [mean.views[at] for mean in means]
            for bucket, means in zip(placed, self._means, strict=True)
            for at, name in enumerate(bucket.names)
        }
        self._arena_of = {launch.number: at for at, bucket in enumerate(placed) for launch in bucket.launches}
        self._begin_turns(placed)
        return placed

    def _begin_turns(self, placed: Sequence[LoadedBucket]) -> None:
        """Of the plan's schedule, or of none; what was due before lies in the first slots now."""
        if self.buckets:
            self._made, self._applied = self.counts
        synchronous = self.sentinel is not None and (self.sentinel.learns or self._retreats)
        planned = self.source.plan(self.source.epochs.current).schedule
        self._schedule = Schedule() if synchronous else planned
        self._described = table(self._schedule, len(self._arena_of))
        self.turns = Turns(self._schedule, [bucket.launches[0].number for bucket in placed])
        self._ends = self._reschedules = False
        self._shown = dict(enumerate(placed)) if self.buckets else {}

    def _reschedule(self) -> None:
        """Another schedule of the same programs: nothing is open or on its way."""
        self._begin_turns(self.buckets)
        self._count_gradients()
        self._norms2 = {}

    def _table(self) -> Table:
        return self._described

    def _open(self) -> list[LoadedBucket]:
        """In the slots that gradients are summed in."""
        both = zip(self.buckets, self.turns.open, strict=True)
        return [bucket.slots[turn.slot] for bucket, turn in both]

    def _adopt(self, launch: int, index: int, parameter: Any) -> None:
        """A gradient that lies elsewhere moves into its turn's slot, or is added to what is there."""
        name, view = self.hooks.gradient(launch, index)
        if any(parameter.grad is due for due in self._due_views[name]):
            raise UsageError(
                f"the gradient of `{name}` was added to the mean that the last step applied\n"
                "hint: optimizer.zero_grad() before each backward"
            )
        self._move(name, view, launch)

    def _move(self, name: str, view: Any, launch: int) -> None:
        if self.turns.open[self._arena_of[launch]].iterations:
            self.framework.add(name, view)
        else:
            self.framework.adopt(name, view)

    def _adopt_missing(self) -> list[str]:
        unmade = []
        for launch, index in self.readiness.missing():
            name, view = self.hooks.gradient(launch, index)
            self._move(name, view, launch)
            # Summed in an iteration before, or without communication: it counts as made.
            if not bool(view.any()):
                unmade.append(name)
        return unmade

    def _begin(self) -> None:
        if self._awaits_step:
            raise UsageError(
                "a backward began before optimizer.step() applied the gradients of the last one, which are of a whole turn\n"
                "hint: one step after each backward; `with model.no_sync():` around those that only accumulate"
            )
        for at, bucket in self._shown.items():
            # The script took the gradients away instead of zeroing them. In a slot that is open they are replaced one by one.
            if bucket is not self.buckets[at].slots[self.turns.open[at].slot]:
                np.frombuffer(memoryview(bucket.memory), np.uint8)[:] = 0
        self._shown = {}
        super()._begin()

    def _stepped(self) -> None:
        self._awaits_step = False

    def _end(self, *, barrier: bool) -> None:  # noqa: ARG002  # what is due is awaited
        began_ns = _native.now_ns()
        if self._watch is not None:
            self._watch.computed({}, {})
        self.framework.check_in_place(self._open())
        seen = self.readiness.order() if self.source.observes else None
        unmade = self._adopt_missing()
        with self._naming_the_finished():
            meet = self.companion.end()
            if self.turns.counts:
                self._count()
            alarmed = self.sentinel is not None and self.sentinel.alarm is not None
            self._votes.cast(self.source.epochs.vote(), unmade, meet=meet, retreat=alarmed)
            self._unmade = set(unmade)
            due = self.turns.ended()
            self.readiness.finish()
            self.companion.launched(waits=True)
        if self.companion.meets or any(turn.due == turn.last for turn in due):
            self._count()
        self._show(due)
        self._drain(due)
        with self._naming_the_finished():
            self.readiness.begin()
        if seen is not None:
            self._agree_on_order(seen)
        ended_ns = _native.now_ns()
        self.source.record("wait_time", (ended_ns - began_ns) * 1e-9)
        self._under_way = False
        self._note()
        if self.spans is not None:
            self.spans.waited(self.iteration, began_ns, ended_ns)
        self.companion.step_ended()
        self.iteration += 1
        if self.source.autopilot is not None:
            self.source.autopilot.step_ended()

    def _count(self) -> None:
        """The votes of the last iteration that ended: the same iteration on all ranks."""
        with self._naming_the_finished():
            begins = self.source.decide(self._votes.count(self.job.settings.timeout_s))
            self.turns.counted(name for name in self._unmade if not self._votes.made(name))
            self.companion.arrive()
            if self._votes.meet:
                self.companion.meet()
            if self._votes.retreat and not self._retreats:
                self._retreats = self._reschedules = True
                self._say_why()
        self._ends = self._ends or begins

    def _say_why(self) -> None:
        if self.job.rank == 0 and self.sentinel is not None:
            seen = self.sentinel.alarm or "another rank's updates"
            log.warning(
                "gradients are neither merged nor late from iteration %d on: %s", self.iteration + 1, seen
            )

    def _drain(self, due: Sequence[Turn]) -> None:
        """Before another epoch begins, turns end: those on their way when they are due, then what is open, as a turn of its own."""
        if not (self._ends or self._reschedules):
            return
        self.readiness.hold()
        self.turns.hold()
        # One update per step: what is open waits for a backward with which nothing else is due.
        if due or not self.turns.drained:
            return
        if self.turns.counts:
            self._count()
        with self._naming_the_finished():
            rounds = self.turns.flush()
            self.readiness.flush()
        for last in rounds:
            self._show(last)
        self._begin_anew()

    def _begin_anew(self) -> None:
        if self._ends:
            self._load()
        elif self._reschedules:
            self._reschedule()

    def _show(self, due: Iterable[Turn]) -> None:
        """Gradients are the means that are due, and None where nothing is."""
        turns = {turn.arena: turn for turn in due}
        factors: dict[str, float] = {}
        for at, bucket in enumerate(self.buckets):
            turn = turns.get(at)
            if turn is None:
                for name in bucket.names:
                    self.framework.drop(name)
                continue
            with self._naming_the_finished():
                for launch in bucket.launches:
                    self.readiness.wait(launch.number, self.job.settings.timeout_s)
            for launch in bucket.launches:
                self.readiness.applied(launch.number)
            mean = self._means[at][turn.slot]
            self.companion.reduced(mean)
            self.framework.show(mean)
            for name in turn.unmade or ():
                if name in self._due_views and name in bucket.names:
                    self.framework.drop(name)
            self._shown[at] = bucket.slots[turn.slot]
            factors |= dict.fromkeys(bucket.names, rate_factor(self._schedule.rate, turn.iterations))
        self.framework.rates(factors)
        self._awaits_step = bool(turns)
        if turns and self.sentinel is not None and not self._retreats:
            self._watch_norm(turns)
        if turns and not self._warned:
            self._warn_of_non_finite()

    def _watch_norm(self, turns: Mapping[int, Turn]) -> None:
        """Of all gradients as they were applied last: those of a bucket that is not due now are as they were."""
        sentinel = self.sentinel
        if sentinel is None:
            return
        learned = sentinel.learns
        for at, turn in turns.items():
            self._norms2[at] = squared_norm(self._means[at][turn.slot], self.framework)
        if len(self._norms2) == len(self.buckets):
            sentinel.see(math.sqrt(sum(self._norms2.values())))
        # The same values on all ranks, so all have seen enough of them now.
        self._reschedules = self._reschedules or (learned and not sentinel.learns)
