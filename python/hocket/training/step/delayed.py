"""Session of a model whose updates merge several iterations, or apply earlier ones, as a plan's schedule says.

A turn sums the gradients of its iterations in one slot of its buckets' memory; backward itself adds them. While the turn travels,
the next one fills the other slot. The end of each backward waits for the turns that are due then: their gradients are the turns'
means, and all others are None, so that the optimizer leaves their parameters alone. Turns that are due at gates are awaited there.
The plan alone decides when a turn is applied, so that two runs give the same bits.

`oversight` decides which of the plan's schedules is in force: a session begins with synchronous updates, and retreats to safer ones
when training no longer goes as it did, from the same iteration on all ranks.

Votes are counted at the end of the next backward, before the next ones are cast; in the same backward only where a turn is due that
ends with it. So ranks wait only for turns that are due.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace as replaced

from hocket import _native
from hocket.artefacts.plan import Schedule
from hocket.errors import PeerError, UsageError
from hocket.planning.walk import rate_factor
from hocket.training.autopilot.stopwatch import Stopwatch
from hocket.training.checkpoint.saved import SavedDelays, SavedSession
from hocket.training.checkpoint.saves import Saves
from hocket.training.checkpoint.slots import fill, going_on, layout_of, places_of, slots_of
from hocket.training.guard.oversight import Oversight
from hocket.training.guard.workload import FirstIteration
from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.buckets import CompiledBucket, LoadedBucket
from hocket.training.memory.framework import Framework
from hocket.training.memory.turns import Turn, Turns, is_synchronous, slots_for
from hocket.training.memory.values import squared_norm
from hocket.training.step.means import Means
from hocket.training.step.reducing import ReducingSession


class DelayedSession(ReducingSession):
    """Session that launches buckets once a turn instead of in every iteration."""

    counted_in = "launch"

    def __init__(self, framework: Framework, **given: Any) -> None:
        # By arena: the slot whose mean was shown last.
        self._shown: dict[int, int] = {}
        # By arena: the turn that is due at its gate, which has not opened.
        self._pending: dict[int, Turn] = {}
        self._made = self._applied = 0
        # Means were shown, and the optimizer has not stepped since.
        self._awaits_step = False
        self._ends = self._retreats = False
        self._norms2: dict[int, float] = {}
        self.sentinel: Oversight | None = None
        # Before gates, which put zero_grad off.
        framework.on_zero_grad(lambda names: self._means.zeroed(names, self._shown))
        super().__init__(framework, **given)
        framework.rates({})
        plan = self.source.plan(self.source.epochs.current)
        self._first = FirstIteration(framework, plan, self.job.rank)
        self.saves = Saves(framework, lambda: self.counts)

    @property
    def counts(self) -> tuple[int, int]:
        """Number of iterations whose gradients were made, and number of those of which all gradients were applied."""
        return self._made + self.turns.made, self._applied + self.turns.applied

    @property
    def schedule(self) -> Schedule:
        """Schedule in force."""
        return self._schedule

    @property
    def retreated(self) -> bool:
        """Return whether the sentinel has ended a schedule."""
        return self.sentinel is not None and self.sentinel.retreated

    def observe(self, *, loss: float | None = None, curvature: float | None = None) -> None:
        super().observe(loss=loss, curvature=curvature)
        if loss is not None and self.sentinel is not None:
            self.sentinel.logged(loss)

    def flush(self) -> None:
        """Reduce, await and apply all gradients that were made and not applied; the optimizer steps once for each update."""
        self._check_applied("flush")
        self.finish_step()
        self.saves.settled()
        if self.turns.counts:
            self._count()
        # What the last step applied may still be there.
        self.drop_gradients()
        rounds = self.turns.flush()
        with self._naming_the_finished():
            self.readiness.flush()
        for due in rounds:
            self._show(due)
            self.framework.step()
            self.drop_gradients()
        self._begin_anew()

    def _check_applied(self, call: str) -> None:
        """Raise UsageError if the optimizer has not stepped with the gradients that were shown last."""
        if self._awaits_step:
            raise UsageError(
                f"{call}: the last backward's gradients were not applied\nhint: optimizer.step() first"
            )

    def joinable(self) -> ReducingSession:
        """Raise UsageError: turns of ranks that have finished cannot be completed."""
        raise UsageError(
            "join: gradients are merged or late, and a rank that has finished would leave turns of the others open\n"
            "hint: give every rank the same number of batches, or use a plan without merged or late gradients"
        )

    def close(self) -> None:
        """Wait for launches in flight, as other ranks need this rank's part of them; report gradients that are not applied."""
        # A job that has failed was reported already.
        with contextlib.suppress(PeerError):
            self.finish_step()
            self._await_all()
        self.saves.ended(self.job.rank)
        if self.spans is not None:
            self.saves.write(self.spans.directory, self.job.rank, self.buckets)
        super().close()

    def _await_all(self) -> None:
        """Wait for all launches in flight."""
        if self.turns.counts:
            self._votes.count(self.job.settings.timeout_s)
        for number in range(len(self.launches)):
            _, launched, applied = self.readiness.progress(number)
            for _ in range(applied, launched):
                self.readiness.wait(number, self.job.settings.timeout_s)
                self.readiness.applied(number)

    def _placed(self, buckets: Sequence[CompiledBucket], epoch: int) -> list[LoadedBucket]:
        array, slots = self.framework.array, self._slots(len(buckets))
        placed = bucket_memory.load(buckets, self.engine, array, epoch=epoch, rank=self.job.rank, slots=slots)
        means = [[bucket_memory.again(slot, array) for slot in bucket.slots] for bucket in placed]
        self._arrange(placed, means)
        return placed

    def _slots(self, launches: int) -> list[int]:
        """Slots that each launch needs, whichever schedule of the plan is in force."""
        plan = self.source.plan(self.source.epochs.current)
        return slots_for((plan.schedule, *plan.safer), launches)

    def _arrange(self, placed: Sequence[LoadedBucket], means: Sequence[Sequence[LoadedBucket]]) -> None:
        """Place buckets. `means`: by arena and slot, gradients while they are due, in other arrays than backward adds to."""
        self._means = Means(self.framework, means)
        self._arena_of = {launch.number: at for at, bucket in enumerate(placed) for launch in bucket.launches}
        self._begin_turns(placed)

    def _begin_turns(self, placed: Sequence[LoadedBucket], schedule: Schedule | None = None) -> None:
        """Begin the turns of a schedule; None: of the one to be used now. Turns that were due before lie in the first slots now."""
        if self.buckets:
            self._made, self._applied = self.counts
        self._schedule = self._next_schedule() if schedule is None else schedule
        self.turns = Turns(self._schedule, [bucket.launches[0].number for bucket in placed])
        self._ends = self._reschedules = self._retreats = False
        self._shown = dict.fromkeys(range(len(placed)), 0) if self.buckets else {}
        if self.source.autopilot is not None:
            self._tell_autopilot(self.source.autopilot.watch)

    def _tell_autopilot(self, watch: Stopwatch) -> None:
        """Tell the autopilot which schedule its steps follow, and whether it is the plan's."""
        late = not is_synchronous(self.source.plan(self.source.epochs.current).schedule)
        learns = late and self.sentinel is not None and self.sentinel.learns
        ended = late and self.retreated and is_synchronous(self._schedule)
        watch.scheduled(self._schedule, counts=not learns, retreated=ended)

    def _next_schedule(self) -> Schedule:
        epoch = self.source.epochs.current
        plan = self.source.plan(epoch)
        # Where the plan's schedule changes nothing, there is nothing to watch.
        if self.sentinel is None and self.job.settings.sentinel and not is_synchronous(plan.schedule):
            trace = None if self.spans is None else self.spans.directory
            self.sentinel = Oversight(self.framework, self.job, self.gauge, trace)
        if self.sentinel is None:
            return plan.schedule
        return self.sentinel.schedule(plan, self.iteration, epoch.number)

    def _reschedule(self) -> None:
        """Switch to another schedule of the same programs, when no turn is open or in flight."""
        self._begin_turns(self.buckets)
        self._count_gradients()
        self._means.moved()
        self._norms2 = {}

    def _load(self) -> None:
        super()._load()
        if self._made:
            self._means.moved()

    def _launches_by(self) -> Schedule:
        return self._schedule

    def _given(self) -> list[LoadedBucket]:
        return [self._means.of[at][slot] for at, slot in self._shown.items()]

    def _filling(self) -> list[LoadedBucket]:
        """Buckets in the slots that gradients are summed in."""
        return [self._open_slot(at) for at in range(len(self.buckets))]

    def _open_slot(self, at: int) -> LoadedBucket:
        return self.buckets[at].slots[self.turns.open[at].slot]

    def _adopt(self, launch: int, index: int, parameter: Any) -> None:
        """Move a gradient that lies elsewhere into its turn's slot, or add it to the sum there."""
        del parameter
        name, view = self.hooks.gradient(launch, index)
        if self.readiness.enabled or not self.turns.open[self._arena_of[launch]].iterations:
            self._move(name, view, launch)
        # A gradient accumulated without communication stays elsewhere: the script may discard it, without the sum.

    def _move(self, name: str, view: Any, launch: int) -> None:
        if self._means.is_due(name):
            raise UsageError(
                f"the gradient of `{name}` is the mean that the last step applied, or was added to it\n"
                "hint: optimizer.zero_grad() before each backward"
            )
        if self.turns.open[self._arena_of[launch]].iterations:
            self.framework.add(name, view)
        else:
            self.framework.adopt(name, view)

    def _adopt_missing(self) -> list[str]:
        unmade = []
        for launch, index in self.readiness.missing():
            name, view = self.hooks.gradient(launch, index)
            if self.framework.gradient(name) is None:
                unmade.append(name)
            self._move(name, view, launch)
        return unmade

    def _begin(self) -> None:
        if self._awaits_step:
            raise UsageError(
                "a backward began before optimizer.step() applied the gradients of the last one, which are of a whole turn\n"
                "hint: one step after each backward; `with model.no_sync():` around those that only accumulate"
            )
        self._shown = {}
        self.saves.training()
        super()._begin()

    def _stepped(self) -> None:
        if self._awaits_step and self.spans is not None:
            self.spans.updated()
        self._awaits_step = False

    def _end(self, *, barrier: bool) -> None:
        began_ns = _native.now_ns()
        if self._watch is not None:
            self._watch.computed(self._arrivals() if self._watch.profiles else {}, {})
        self.framework.check_announced()
        self._first.check()
        seen = self.readiness.order() if self.source.observes else None
        unmade = self._adopt_missing()
        gauged = self.sentinel is not None and self.sentinel.gauges(self.turns.made)
        if gauged:
            self.gauge.made(self._filling())
        with self._naming_the_finished():
            meet = self.companion.end()
            if self.turns.counts:
                self._count()
            alarmed = self.sentinel is not None and self.sentinel.alarm is not None
            self._vote(unmade, meet=meet, retreat=alarmed)
            self._unmade = set(unmade)
            due = self.turns.ended()
            self.readiness.finish()
            self.companion.launched(waits=True)
        later = [] if barrier else [turn for turn in due if turn.at == "gate"]
        now = [turn for turn in due if turn not in later]
        if self.companion.meets or any(turn.due == turn.last for turn in now):
            self._count()
        # Without gates, turns due at them are applied now; they may be sent as late as the next iteration's begin.
        begun = any(turn.at == "gate" for turn in now)
        if begun:
            self._begin_next()
        self._show(now, later)
        if gauged:
            self._gauge(due)
        self._drain(due)
        if not begun:
            self._begin_next()
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

    def _begin_next(self) -> None:
        with self._naming_the_finished():
            self.readiness.begin()

    def _count(self) -> None:
        """Count the votes of the last iteration that ended, which is the same iteration on all ranks."""
        with self._naming_the_finished():
            begins = self.source.decide(self._votes.count(self.job.settings.timeout_s))
            self._together.counted(self._votes)
            self.turns.counted(name for name in self._unmade if not self._votes.made(name))
            self.companion.arrive()
            if self._votes.meet:
                self.companion.meet()
            if self._votes.retreat and self.sentinel is not None and not self._retreats:
                self._retreats = self._reschedules = True
                epoch = self.source.epochs.current
                plan = self.source.plan(epoch)
                self.sentinel.retreat(self._schedule, plan, self.iteration + 1, epoch.number)
        self._ends = self._ends or begins

    def _gauge(self, due: Sequence[Turn]) -> None:
        """Give the gauge the means of the gradients that were copied, unless other iterations are in them."""
        if len(due) == len(self.buckets) and all(turn.iterations == 1 for turn in due):
            self.gauge.reduced([self._means.of[turn.arena][turn.slot] for turn in due])
        else:
            self.gauge.forget()

    def _drain(self, due: Sequence[Turn]) -> None:
        """End turns before another epoch begins: those in flight when they are due, then the open ones, as a turn of its own."""
        if not (self._ends or self._reschedules):
            return
        self.readiness.hold()
        self.turns.hold()
        # One update per step: the open turn waits for a backward with which nothing else is due.
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
            if self.gates is not None:
                self.gates = self._gate()
        elif self._reschedules:
            self._reschedule()

    def _show(self, due: Sequence[Turn], later: Sequence[Turn] = ()) -> None:
        """Set gradients to the means that are due, and to None where nothing is; those of `later` when their gates open."""
        self._pending = {turn.arena: turn for turn in later}
        factors: dict[str, float] = {}
        for turn in (*due, *later):
            factor = rate_factor(self._schedule.rate, turn.iterations)
            factors |= dict.fromkeys(self.buckets[turn.arena].names, factor)
        now = {turn.arena: turn for turn in due}
        for at, bucket in enumerate(self.buckets):
            if at in now:
                self._show_one(now[at])
            else:
                for name in bucket.names:
                    self.framework.drop(name)
        self.framework.rates(factors)
        self._awaits_step = bool(factors)
        if now and not later:
            self._shown_all()

    def _wait_bucket(self, bucket: int) -> None:
        """Wait for the turn that is due at this bucket's gate, which opens."""
        turn = self._pending.get(bucket)
        if turn is None:
            return
        if turn.due == turn.last and self.turns.counts:
            self._count()
        self._show_one(turn)
        del self._pending[bucket]
        if not self._pending:
            self._shown_all()

    def _take_turn(self, turn: Turn) -> None:
        """Wait for a turn's mean, which is the gradient from now on."""
        launches = self.buckets[turn.arena].launches
        with self._naming_the_finished():
            for launch in launches:
                self.readiness.wait(launch.number, self.job.settings.timeout_s)
        for launch in launches:
            self.readiness.applied(launch.number)

    def _show_one(self, turn: Turn) -> None:
        self._take_turn(turn)
        at = turn.arena
        mean = self._means.of[at][turn.slot]
        self.companion.reduced(mean)
        self.framework.show(mean)
        for name in turn.unmade or ():
            if name in mean.names:
                self.framework.drop(name)
        self._shown[at] = turn.slot
        if self._looks:
            self._norms2[at] = squared_norm(mean, self.framework)

    def _shown_all(self) -> None:
        """Watch norms and non-finite values, now that all turns that were due are here."""
        if self.sentinel is not None and self._looks:
            self._watch_norm(self.sentinel)
        if not self._warned:
            self._warn_of_non_finite()

    @property
    def _looks(self) -> bool:
        """True if a sentinel wants to see applied gradients."""
        return self.sentinel is not None and self.sentinel.looks and not self._retreats

    def _watch_norm(self, sentinel: Oversight) -> None:
        """Show the sentinel the norm of all gradients as applied last: buckets that are not due now keep their old norm."""
        learned = sentinel.learns
        if len(self._norms2) == len(self.buckets):
            sentinel.see(math.sqrt(sum(self._norms2.values())))
        # The same values on all ranks, so all have seen enough of them now.
        self._reschedules = self._reschedules or (learned and not sentinel.learns)

    def saved(self) -> SavedSession:
        """Return the state with gradients made and not applied. UsageError: a step is missing, or another plan begins."""
        self._check_applied("state_dict")
        self.finish_step()
        if self.turns.counts:
            self._count()
        if self._ends:
            raise UsageError(
                "state_dict: another plan begins with one of the next iterations, and open turns go on in the same alone\n"
                "hint: hk.flush(model) first"
            )
        with self._naming_the_finished():
            for launch in self.launches:
                self.engine.wait(launch.program, self.job.settings.timeout_s)
        progress = [self.readiness.progress(launch.number) for launch in self.launches]
        return self._with_turns(super().saved(), [launched - applied for _, launched, applied in progress])

    def _with_turns(self, saved: SavedSession, reduced: Sequence[int]) -> SavedSession:
        """Add the turns. `reduced`: by launch, turns whose slots have their means."""
        self.saves.settled()
        delays = SavedDelays(
            layout=self._layout(),
            turns=self.turns.saved(),
            reduced=tuple(reduced),
            slots=slots_of(self.buckets, self.turns.saved(), self._shown),
            schedule=self._schedule,
            retreats=self._retreats,
            reschedules=self._reschedules,
            oversight=None if self.sentinel is None else self.sentinel.saved(),
            norms2=tuple(self._norms2.items()),
        )
        return replaced(saved, delays=delays)

    def restore(self, saved: SavedSession, *, strict: bool) -> None:
        """Restore the turns too. UsageError: a backward has begun, or turns are open and belong to another plan or job."""
        if self.turns.made or self._under_way:
            raise UsageError("load_state_dict: a backward has begun\nhint: load before the first one")
        super().restore(saved, strict=strict)
        delays = going_on(saved, self._layout(), self.job, len(self.launches))
        if delays is None:
            return
        if self.sentinel is not None and delays.oversight is not None:
            self.sentinel.restore(delays.oversight)
        self._begin_turns(self.buckets, delays.schedule)
        self._made = self._applied = 0
        self._shown = {}
        self.turns.restore(delays.turns)
        self._retreats, self._reschedules = delays.retreats, delays.reschedules
        self._norms2 = dict(delays.norms2)
        self.drop_gradients()
        fill(self.buckets, delays.slots)
        self._count_gradients((self.turns.phase, places_of(self.launches, self._arena_of, delays)))
        if self.turns.held:
            self.readiness.hold()

    def _layout(self) -> str:
        plan = self.source.plan(self.source.epochs.current)
        return layout_of(plan, self.launches, self.job, watched=self.sentinel is not None)
