"""Step of a model whose gradients are reduced, from a gradient's readiness to the end of backward or the gate of its parameter.

In a step Python runs the native readiness hook per gradient, one callback when the first gradient of a backward comes and one wait
at its end (or one per gate); launching, moving and reducing buckets is native and needs no GIL.

One class makes every step. Its fields say how: `updates` has the schedule in force, `memory` says where sums lie, `commit` when a
step stands, and each bucket how it is exchanged: reduced, by owners, as rows, through servers.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence

from hocket import _native
from hocket._native import LiveTurn
from hocket.artefacts.plan import Plan
from hocket.errors import PeerError, UsageError
from hocket.training.autopilot.stopwatch import Stopwatch
from hocket.training.checkpoint import states
from hocket.training.guard.gauge import Gauge
from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.buckets import Launch, LoadedBucket
from hocket.training.memory.framework import Framework, Gates
from hocket.training.memory.turns import SavedTurns, slots_for
from hocket.training.step.accumulation import Accumulation
from hocket.training.step.agreement import Agreement
from hocket.training.step.commit import Commit
from hocket.training.step.companion import Companion
from hocket.training.step.delays import Delays
from hocket.training.step.joinable import finished_first
from hocket.training.step.memory import Memory
from hocket.training.step.owners import Owners
from hocket.training.step.place import Place
from hocket.training.step.statistics import Steps, warn_of_non_finite
from hocket.training.step.together import Together
from hocket.training.step.updates import Updates


class Step:
    """Order of a step: what happens when gradients come, when backward ends, and when the optimizer steps."""

    def __init__(
        self,
        framework: Framework,
        place: Place,
        *,
        companion: Companion,
        memory: Memory,
        commit: Commit,
        merges: bool,
        steps: int = 0,
    ) -> None:
        """Make the buckets, load the programs, hook every gradient. `merges`: gradients of several iterations, or late ones, may be
        applied; `steps`: number that the job has made until now."""
        self.framework, self.companion = framework, companion
        self.memory, self.commit = memory, commit
        self.gauge = Gauge()
        self.iteration = steps
        self._owner = os.getpid()
        self._under_way = self._warned = False
        self.accumulation = Accumulation(self._enable)
        self.updates = Updates(framework, merges=merges)
        self.gates: Gates | None = None
        self._take(place)
        self.delays: Delays | None = None
        if merges:
            trace = None if place.spans is None else place.spans.directory
            watched = place.job.settings.sentinel and commit.watches
            self.delays = Delays(framework, self.updates, place.job, self.gauge, watched=watched, trace=trace)
        commit.begin(self)
        self._load()
        self.agreement.together = Together(framework, self.job, self.source, begins=steps + 1)
        framework.on_step(self._stepped)
        if self._watch is not None:
            self._watch.seen = lambda: self.gauge.report(framework.learning())
        if self.source.gates:
            self.gates = self._gate()
        if self.delays is not None:
            self.delays.watch(self._plan)

    def _take(self, place: Place) -> None:
        """Train at this place in the job."""
        self._place = place
        self.job, self.engine, self.source, self.spans = place.job, place.engine, place.source, place.spans
        self.agreement = Agreement(self, place)
        self._steps = Steps(place.engine, place.source)
        self.owners = Owners(self.framework, place.engine, place.job, self.naming)

    @property
    def buckets(self) -> list[LoadedBucket]:
        """Memory of gradients, with their launches."""
        return self.updates.buckets

    @property
    def launches(self) -> list[Launch]:
        """Programs of the buckets, by number."""
        return self.updates.launches

    @property
    def ends_turns(self) -> bool:
        """True if an epoch or another schedule begins when all gradients are given."""
        return self.agreement.begins or (self.delays is not None and self.delays.reschedules)

    @property
    def _plan(self) -> Plan:
        """Plan in force."""
        return self.source.plan(self.source.epochs.current)

    @property
    def _watch(self) -> Stopwatch | None:
        """Stopwatch of the autopilot, if there is one."""
        return None if self.source.autopilot is None else self.source.autopilot.watch

    def finish_step(self) -> None:
        """Open all gates, which applies the updates that they put off."""
        if self.gates is not None:
            self.gates.open_all()

    # Epochs.

    def _load(self) -> None:
        """Load buckets, programs and hooks of the epoch in force."""
        old, before = self.buckets, self.launches
        self.owners.release()
        plan = self._plan
        self.commit.loads(plan)
        compiled = self.source.buckets()
        slots = slots_for(plan, len(compiled))
        placed = self.memory.placed(compiled, self._place, self.framework, slots, old)
        self.updates.place(placed, self.memory.sums(placed, self.framework))
        self._schedule(plan, anew=bool(old))
        states.put(states.held(old, self.engine, self.job.rank), placed, self.engine, self.job.rank)
        for each in self.launches if self.commit.calls_libraries else ():
            if each.compiled.number is None:
                self._place.libraries.learn(each.program, each.compiled.program)
        self.source.loaded(plan, placed, self.launches, first=not old)
        self._count_gradients()
        self.owners.take(placed)
        for bucket in placed if old else ():
            self.owners.reduced(bucket)
        ended = [each for each in before if each not in self.launches]
        for each in ended:
            self._place.libraries.forget(each.program)
        bucket_memory.unload(ended, self.engine)
        self._place.loaded(self.source, placed)
        if self.delays is not None and old:
            self.updates.means.moved()

    def _schedule(self, plan: Plan, *, anew: bool) -> None:
        """Begin the turns of the plan's schedule that is to be used now."""
        schedule = plan.schedule
        if self.delays is not None:
            schedule = self.delays.schedule(plan, self.iteration, self.source.epochs.current.number)
        self.updates.begin(schedule, anew=anew)
        if self.delays is not None and self._watch is not None:
            self.delays.tell(self._watch, plan)

    def _count_gradients(
        self,
        *,
        after: _native.Readiness | None = None,
        saved: tuple[SavedTurns, Sequence[int]] | None = None,
        moves: bool = True,
    ) -> None:
        """Count gradients by the loaded launches. `after`, `saved`: turns that go on. `moves`: gradients that exist are in other
        memory than the buckets'."""
        updates = self.updates
        arena_of = updates.arena_of
        readiness = _native.Readiness(
            self.engine,
            [(each.program, len(each.compiled.ranges), arena_of[each.number]) for each in self.launches],
            self._on_first,
            updates.adopt,
            updates.twice,
            self._on_refused,
            updates.schedule,
            after,
            saved,
        )
        self.commit.counts(readiness)
        updates.count(readiness, moves=moves)
        self.accumulation.decide()

    def _enable(self, communicates: bool) -> None:
        self.updates.readiness.enabled = communicates

    def _gate(self) -> Gates:
        names = [bucket.names for bucket in self.buckets]
        return self.framework.gate(names, self._wait_bucket, self.owners)

    def _begin_anew(self) -> None:
        """Begin an epoch or another schedule, if one is to begin and all gradients were given."""
        if not self.ends_turns:
            return
        if not self.updates.ready:
            self.updates.hold()
        elif self.agreement.begins:
            self.agreement.begins = False
            self.commit.epoch_begins(self._load)
            if self.gates is not None:
                self.gates = self._gate()
        else:
            self._schedule(self._plan, anew=True)
            self._count_gradients()
            self.updates.means.moved()

    # Backward.

    def _on_first(self) -> None:
        if os.getpid() != self._owner:
            raise UsageError(
                "backward in a forked child of the process that distributed the model\n"
                "hint: train in the process that called `distribute`"
            )
        self.framework.check_in_place(self.updates.filling)
        self._begin()
        if self.gates is not None:
            self.gates.backward_began()
        self.framework.when_backward_ends(self._on_end)

    def _begin(self) -> None:
        self.commit.backward_began()
        if self.delays is not None:
            self.delays.backward_began()
        self.updates.shown = {}
        self._under_way = True
        if self._watch is not None:
            self.updates.readiness.set_timed(self._watch.began())
        self._place.libraries.expect([launch.program for launch in self.launches])
        self.source.backward_began(self.iteration)
        self.owners.hold()
        with self.naming():
            self.companion.begin()

    def _on_end(self) -> None:
        """End backward: launch buckets that are incomplete as they are, then wait for all buckets, or close the gates."""
        self._end(barrier=self.gates is None or self.companion.barrier)
        self.accumulation.backward_ended()
        if self.gates is not None:
            self.gates.backward_ended()

    def _end(self, *, barrier: bool) -> None:
        began_ns = _native.now_ns()
        updates, delays = self.updates, self.delays
        if self._watch is not None:
            touched = {rows.gradient.name: rows.touched for rows in updates.rows}
            self._watch.computed(updates.times() if self._watch.profiles else {}, touched)
        self.framework.check_announced()
        seen = updates.readiness.order() if self.source.observes else None
        unmade = updates.complete()
        if delays is not None:
            delays.backward_ended()
        # Without turns of the plan, an epoch begins with this step.
        barrier = barrier or (delays is None and not self.source.epochs.settled)
        due = self.commit.reduce(unmade, waits=barrier or delays is not None)
        later = [] if barrier else [turn for turn in due if turn.at == "gate"]
        now = due if barrier else [turn for turn in due if turn.at != "gate"]
        if (delays is not None and self.companion.meets) or any(turn.due == turn.last for turn in now):
            self.agreement.count()
        # Without gates, turns due at them are applied now; they may be sent as late as the next iteration's begin.
        begun = any(turn.at == "gate" for turn in now)
        if begun:
            self._begin_next()
        self._give(now, later)
        if delays is not None:
            delays.gauge(due)
        if not later:
            self.source.record("wait_time", (_native.now_ns() - began_ns) * 1e-9)
        self._begin_anew()
        if not begun:
            self._begin_next()
        if seen is not None:
            self.agreement.order(seen)
        self._under_way = False
        if self.source.timer is not None and not self.commit.left:
            # No rank has the norm of gradients that have owners.
            whole = self.gates is None and not self.owners
            self._steps.note(updates.given if whole else (), self.framework)
        if self.spans is not None:
            self.spans.waited(self.iteration, began_ns, _native.now_ns())
        self.companion.step_ended()
        self.iteration += 1
        if self.source.autopilot is not None:
            self.source.autopilot.step_ended()
        self.commit.step_ended()

    def _begin_next(self) -> None:
        if not self.commit.left:
            with self.naming():
                self.updates.readiness.begin()

    # Updates.

    def _give(self, due: Sequence[LiveTurn], later: Sequence[LiveTurn] = ()) -> None:
        """Give the optimizer the means that are due; those of `later` when their gates open."""
        self.updates.pending = {turn.arena: turn for turn in later}
        if self.delays is not None:
            self.delays.give(due, later)
        for turn in due:
            self._give_one(turn)
        if due and not later:
            self._all_given()

    def _wait_bucket(self, bucket: int) -> None:
        """Wait for the turn that is due at this bucket's gate, which opens."""
        turn = self.updates.pending.get(bucket)
        if turn is None:
            return
        if turn.due == turn.last:
            self.agreement.count()
        self._give_one(turn)
        del self.updates.pending[bucket]
        if not self.updates.pending:
            self._all_given()

    def _give_one(self, turn: LiveTurn) -> None:
        """Wait for a turn's mean, which is the gradient from now on; one that no rank made becomes None."""
        self.commit.wait(turn)
        own, mean = self.buckets[turn.arena], self.updates.means.of[turn.arena][turn.slot]
        self.companion.reduced(mean)
        self.owners.reduced(own)
        if mean is not own:
            self.framework.show(mean)
        for name in self.updates.unmade.taken(turn).intersection(own.names):
            self.framework.drop(name)
        if self.source.served is not None and own.served:
            self.source.served.take(own)
        self.updates.shown[turn.arena] = turn.slot
        if self.delays is not None:
            self.delays.given(turn.arena, mean)

    def _all_given(self) -> None:
        """Watch what all turns that were due have brought."""
        if self.delays is not None:
            self.delays.all_given()
        if not self._warned:
            self._warn_of_non_finite()

    def _stepped(self) -> None:
        """Let owners send the values that the optimizer has updated, unless gates have put the step off."""
        if self.owners and not (self.gates is not None and self.gates.closed):
            self.owners.stepped()
        if self.delays is not None and self.delays.stepped() and self.spans is not None:
            self.spans.updated()
        self.commit.stepped()
        if self._watch is not None:
            self._watch.stepped()

    def follow(self, placed: list[LoadedBucket]) -> None:
        """Go on with programs over the same memory, for other ranks of the job."""
        self.updates.place(placed, self.memory.sums(placed, self.framework))
        self._count_gradients(after=self.updates.readiness, moves=False)
        self._steps = Steps(self.engine, self.source)
        self._place.loaded(self.source, placed)

    @contextlib.contextmanager
    def naming(self) -> Iterator[None]:
        """Say in errors of the body what is known of a rank that is gone."""
        try:
            yield
        except PeerError as error:
            self._on_refused(error)
            if self.source.served is not None:
                raise self.source.served.named(error) from None
            raise

    def _on_refused(self, error: Exception) -> bool:
        """Tell the policy that a rank is gone. A rank that only finished first gets a better error than that it left. Return
        whether training goes on all the same."""
        if self.commit.refused(error):
            return True
        if not isinstance(error, PeerError) or error.rank is None or error.rank == self.job.rank:
            return False
        # A server that ends has not finished its data: it has none.
        if error.rank < self.job.world:
            if self.source.timer is not None:
                self.source.timer.worker_removed(error.rank)
            if error.why == "left":
                raise finished_first(error, self.job, self.iteration, self.framework.hints) from None
        return False

    def _warn_of_non_finite(self) -> None:
        self._warned = warn_of_non_finite(
            self.engine,
            self.launches,
            who=f"rank {self.job.rank} on {self.job.host}",
            counted_in="iteration" if self.delays is None else "launch",
            hint=self.framework.hints.non_finite,
        )
