"""Step of a model whose gradients are reduced, from a gradient's readiness to the end of backward or the gate of its parameter.

In a step Python runs the native readiness hook per gradient, one callback when the first gradient of a backward comes and one wait
at its end (or one per gate); launching, moving and reducing buckets is native and needs no GIL.

One class makes every step. Its fields say how: `updates` has the schedule in force, `loading` says where sums lie, `commit` when a
step stands, and each bucket how it is exchanged: reduced, by owners, as rows, through servers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from hocket import _native
from hocket.artefacts.plan import Plan
from hocket.errors import PeerError
from hocket.job.live.progress import Progress
from hocket.training.autopilot.stopwatch import Stopwatch
from hocket.training.guard.gauge import Gauge
from hocket.training.memory.buckets import Launch, LoadedBucket
from hocket.training.memory.device import received
from hocket.training.memory.framework import Framework
from hocket.training.step.accumulation import Accumulation
from hocket.training.step.agreement import Agreement
from hocket.training.step.commit import Commit
from hocket.training.step.companion import Companion
from hocket.training.step.delays import Delays
from hocket.training.step.joinable import finished_first
from hocket.training.step.loading import Loading
from hocket.training.step.memory import Memory
from hocket.training.step.place import Place
from hocket.training.step.statistics import Steps, warn_of_non_finite
from hocket.training.step.stepping import Stepping
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
        self.commit, self.loading = commit, Loading(self, memory)
        self.gauge, self.iteration = Gauge(), steps
        self._under_way = self._warned = False
        self.updates = Updates(framework, merges=merges, ranks=lambda: commit.ranks())  # noqa: PLW0108  # it is known when the commit begins
        self.accumulation = Accumulation(self.updates)
        self._take(place)
        self.delays: Delays | None = None
        if merges:
            trace = None if place.spans is None else place.spans.directory
            watched = place.job.settings.sentinel and commit.watches
            self.delays = Delays(
                framework,
                self.updates,
                place.job,
                self.gauge,
                watched=watched,
                trace=trace,
                record=self.record,
            )
        self.progress.begun = steps
        commit.begin(self)
        self.stepping = Stepping(self)
        self.loading.load()
        self.agreement.together = Together(framework, self.job, self.source, begins=steps + 1)
        framework.on_step(self._stepped)
        if self.watch is not None:
            self.watch.seen = lambda: self.gauge.report(framework.learning())
        if self.source.gates:
            self.loading.gate()
        if self.delays is not None:
            self.delays.watch(self.plan)
        self.stepping.start()

    def _take(self, place: Place) -> None:
        """Train at this place in the job."""
        self.place = place
        self.job, self.engine, self.source, self.spans = place.job, place.engine, place.source, place.spans
        self.agreement = Agreement(self, place)
        self.steps = Steps(place.engine, place.source)
        self.owners = self.commit.owners(self, place)

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
    def plan(self) -> Plan:
        """Plan in force."""
        return self.source.plan(self.source.epochs.current)

    @property
    def progress(self) -> Progress:
        """What observers of the job see of this rank."""
        return self.job.progress

    @property
    def watch(self) -> Stopwatch | None:
        """Stopwatch of the autopilot, if there is one."""
        return None if self.source.autopilot is None else self.source.autopilot.watch

    def record(self, name: str, value: float) -> None:
        """Record a statistic for the policy."""
        self.source.record(name, value)

    def sent(self) -> None:
        """Note that turns were sent: where ranks step alone, libraries run the collectives of what has left, and no others."""
        if self.updates.local is not None:
            self.place.libraries.expect(self.updates.local.sent())

    def finish_step(self) -> None:
        """Open all gates, which applies the updates that they put off."""
        if self.loading.gates is not None:
            self.loading.gates.open_all()

    # Backward.

    def on_first(self) -> None:
        self.loading.check_process()
        if self.updates.own is None:
            self.framework.check_in_place(self.updates.filling)
        self.begin_iteration()
        if self.loading.gates is not None:
            self.loading.gates.backward_began()
        self.framework.when_backward_ends(self._on_end)

    def begin_iteration(self) -> None:
        self.note_begin()
        with self.naming():
            self.companion.begin()

    def note_begin(self) -> None:
        self.progress.backward_began()
        self.commit.backward_began()
        if self.delays is not None:
            self.delays.backward_began()
        self.updates.shown = {}
        self._under_way = True
        if self.watch is not None:
            self.updates.readiness.set_timed(self.watch.began())
        if self.updates.local is None:
            self.place.libraries.expect([launch.program for launch in self.launches])
        self.source.backward_began(self.iteration)
        self.owners.hold()

    def _on_end(self) -> None:
        """End backward: launch buckets that are incomplete as they are, then wait for all buckets, or close the gates."""
        self.end_iteration(barrier=self.loading.gates is None or self.companion.barrier)
        self.accumulation.backward_ended()
        if self.loading.gates is not None:
            self.loading.gates.backward_ended()

    def end_iteration(self, *, barrier: bool, left: Sequence[_native.LiveTurn] | None = None) -> None:
        """End an iteration. `left`: turns that are due with it, if this rank's part has left already."""
        began_ns = _native.now_ns()
        self.progress.wait_began()
        updates, delays = self.updates, self.delays
        if self.watch is not None:
            touched = {rows.gradient.name: rows.touched for rows in updates.rows}
            self.watch.computed(updates.times() if self.watch.profiles else {}, touched)
        self.framework.check_announced()
        seen = updates.readiness.order() if self.source.observes else None
        # Without turns of the plan, an epoch begins with this step. A thread may tell of it until this rank has voted.
        barrier = barrier or self.agreement.settles
        due = self.reduce(barrier=barrier) if left is None else left
        barrier = barrier or self.agreement.settles
        later = [] if barrier else [turn for turn in due if turn.at == "gate"]
        now = due if barrier else [turn for turn in due if turn.at != "gate"]
        weighing = None if updates.local is None else updates.local.weighing
        at_once = any(turn.due == turn.last for turn in now)
        if at_once or (delays is not None and self.companion.meets) or (weighing and weighing.waits(now)):
            self.agreement.count()
        # Without gates, turns due at them are applied now; they may be sent as late as the next iteration's begin.
        begun = any(turn.at == "gate" for turn in now)
        if begun:
            self._begin_next()
        self.give(now, later)
        if delays is not None:
            delays.gauge(due)
        if not later:
            self.source.record("wait_time", (_native.now_ns() - began_ns) * 1e-9)
        self.loading.begin_anew()
        if not begun:
            self._begin_next()
        if seen is not None:
            self.agreement.order(seen)
        self._under_way = False
        if self.source.timer is not None and not self.commit.left:
            # No rank has the norm of gradients that have owners.
            whole = self.loading.gates is None and not self.owners
            self.steps.note(updates.given if whole else (), self.framework)
        if self.spans is not None:
            self.spans.waited(self.iteration, began_ns, _native.now_ns())
        self.companion.step_ended()
        self.iteration += 1
        self.progress.wait_ended()
        self.progress.step_ended()
        if self.source.autopilot is not None:
            self.source.autopilot.step_ended()
        self.commit.step_ended()

    def reduce(self, *, barrier: bool) -> Sequence[_native.LiveTurn]:
        """Let what this iteration ends leave; return the turns that are due with it."""
        unmade = self.updates.complete()
        if self.delays is not None:
            self.delays.backward_ended()
        return self.commit.reduce(unmade, waits=barrier or self.delays is not None)

    def _begin_next(self) -> None:
        if not self.commit.left:
            with self.naming():
                self.updates.readiness.begin()

    # Updates.

    def give(self, due: Sequence[_native.LiveTurn], later: Sequence[_native.LiveTurn] = ()) -> None:
        """Give the optimizer the means that are due; those of `later` when their gates open."""
        self.updates.pending = {turn.arena: turn for turn in later}
        if self.delays is not None:
            self.delays.give(due, later)
        unmade = {turn.arena: self._give_one(turn) for turn in due}
        if self.delays is not None:
            self.delays.arrived(due, unmade)
        if due and not later:
            self._all_given()
        if due and self.updates.local is not None and self.spans is not None:
            self.spans.updated()

    def wait_bucket(self, bucket: int) -> None:
        """Wait for the turn that is due at this bucket's gate, which opens."""
        turn = self.updates.pending.get(bucket)
        if turn is None:
            return
        self.progress.wait_began()
        if turn.due == turn.last:
            self.agreement.count()
        self._give_one(turn)
        self.progress.wait_ended()
        del self.updates.pending[bucket]
        if not self.updates.pending:
            self._all_given()

    def _give_one(self, turn: _native.LiveTurn) -> frozenset[str]:
        """Wait for a turn's mean, which is the gradient from now on, unless own gradients go first; one that no rank made becomes
        None. Return the parameters that no rank made."""
        self.commit.wait(turn)
        own, mean = self.buckets[turn.arena], self.updates.means.of[turn.arena][turn.slot]
        received(self.framework.device, [mean.memory])
        self.companion.reduced(mean)
        if self.accumulation.weighted is not None:
            members = self.place.job.members
            self.accumulation.weighted.arrived(mean, [members[rank] for rank in self.commit.ranks()])
        unmade = self.updates.unmade.taken(turn).intersection(own.names)
        if self.delays is not None:
            self.delays.given(turn, mean)
        if self.updates.own is not None:
            return unmade
        if mean is not own and not own.sparse:
            self.framework.show(mean)
        self.owners.reduced(own)
        for name in unmade:
            self.framework.drop(name)
        if self.source.served is not None and own.served:
            self.source.served.take(own)
        self.updates.shown[turn.arena] = turn.slot
        return unmade

    def _all_given(self) -> None:
        """Watch what all turns that were due have brought."""
        if self.delays is not None:
            self.delays.all_given()
        self._warned = self._warned or warn_of_non_finite(
            self.engine,
            self.launches,
            who=f"rank {self.job.rank} on {self.job.host}",
            counted_in="iteration" if self.delays is None else "launch",
            hint=self.framework.hints.non_finite,
        )

    def _stepped(self) -> None:
        """Let owners send the values that the optimizer has updated, unless gates have put the step off."""
        with self.stepping.releasing():
            if self.updates.local is not None:
                self.stepping.stepped(self.updates.local)
            else:
                if self.owners and not (self.loading.gates is not None and self.loading.gates.closed):
                    self.owners.stepped()
                if self.delays is not None and self.delays.stepped() and self.spans is not None:
                    self.spans.updated()
            self.commit.stepped()
            self.progress.stepped()
            if self.watch is not None:
                self.watch.stepped()

    @contextlib.contextmanager
    def naming(self) -> Iterator[None]:
        """Say in errors of the body what is known of a rank that is gone."""
        try:
            yield
        except PeerError as error:
            self.on_refused(error)
            if self.source.served is not None:
                raise self.source.served.named(error) from None
            raise

    def on_refused(self, error: Exception) -> bool:
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
