"""Session of a model whose gradients are reduced, from a gradient's readiness to the end of backward or the gate of its parameter.

In a step Python runs the native readiness hook per gradient, one callback when the first gradient of a backward comes and one wait
at its end (or one per gate); launching, moving and reducing buckets is native and needs no GIL.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator, Mapping, Sequence

from hocket import _native
from hocket.artefacts.plan import Schedule
from hocket.errors import PeerError, UsageError
from hocket.job.rendezvous import Job
from hocket.libraries.service import Service
from hocket.policy.policy import Value
from hocket.training.autopilot.stopwatch import Stopwatch
from hocket.training.beside.spans import Spans
from hocket.training.checkpoint import states
from hocket.training.checkpoint.resume import resume
from hocket.training.checkpoint.saved import SavedSession
from hocket.training.guard.gauge import Gauge
from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.buckets import CompiledBucket, Launch, LoadedBucket, launches_of
from hocket.training.memory.framework import Framework, Gates
from hocket.training.memory.gathered import Rows, dense_names
from hocket.training.memory.gradients import gradients_of
from hocket.training.memory.turns import Places
from hocket.training.memory.values import squared_norm
from hocket.training.programs.source import Loaded, ProgramSource
from hocket.training.servers.served import PATIENCE_S
from hocket.training.step.companion import Companion
from hocket.training.step.joinable import check_joinable
from hocket.training.step.owners import Owners
from hocket.training.step.places import Hooks, InPlace
from hocket.training.step.statistics import Steps, warn_of_non_finite
from hocket.training.step.together import Together
from hocket.training.step.votes import Ballot, OutOfStep, Votes


class ReducingSession(InPlace):
    """Engine, buckets and hooks of one distributed model."""

    counted_in = "iteration"
    """Unit in which errors count launches of a bucket's program."""

    def __init__(
        self,
        framework: Framework,
        *,
        source: ProgramSource,
        job: Job,
        engine: _native.Engine,
        libraries: Service,
        spans: Spans | None,
        companion: Companion,
        loaded: Loaded,
    ) -> None:
        """Make the buckets, load the programs, hook every gradient. `loaded`: called with each epoch's buckets."""
        self.framework = framework
        self.job = job
        self.spans = spans
        self.engine = engine
        self.source = source
        self.companion = companion
        self._libraries = libraries
        self._loaded = loaded
        self.gauge = Gauge()
        self.iteration = 0
        self._gradients = gradients_of(framework.parameters())
        self._owner = os.getpid()
        self._votes: Ballot = OutOfStep()
        if source.in_step:
            self._votes = Votes(engine, job.hosts, list(self._gradients))
        self._warned = False
        self._under_way = False
        self._counted = False
        self._begins = False
        self._unmade: set[str] = set()
        self._waited: set[int] = set()
        self._steps = Steps(engine, source)
        self.buckets: list[LoadedBucket] = []
        self.launches: list[Launch] = []
        self.owners = Owners(framework, engine, job, self._naming_the_finished)
        self._rows: list[Rows] = []
        self._load()
        self._together = Together(framework, job, source)
        framework.on_step(self._stepped)
        framework.on_step(self._time_step)
        if self._watch is not None:
            self._watch.seen = lambda: self.gauge.report(framework.learning())
        self.gates: Gates | None = None
        if source.gates:
            self.gates = self._gate()

    @property
    def programs(self) -> list[int]:
        """Program number of each launch."""
        return [launch.program for launch in self.launches]

    def start(self) -> None:
        """Start the threads beside training."""
        self.source.start_timer()

    def communicates(self) -> bool:
        """Return whether a backward now would communicate."""
        return self.readiness.enabled

    def record(self, name: str, value: float) -> None:
        """Record a statistic for the policy."""
        self.source.record(name, value)

    def observe(self, *, loss: float | None = None, curvature: float | None = None) -> None:
        self.gauge.observe(loss=loss, curvature=curvature)

    def agreed(self) -> Mapping[str, Value]:
        return self.source.agreed()

    def settle(self) -> None:
        """Open all gates. UsageError: gradients do not come back."""
        if self.source.served is not None:
            raise UsageError(
                "gradients are not there to be clipped: they were pushed, and parameter servers update with them\n"
                "hint: clip without parameter servers, or scale the loss"
            )
        self.finish_step()

    def flush(self) -> None:
        """Finish the last step: nothing else is outstanding."""
        self.finish_step()

    def saved(self) -> SavedSession:
        self.finish_step()
        return SavedSession.of(states.held(self.buckets, self.engine, self.job.rank), self.job)

    def restore(self, saved: SavedSession, *, strict: bool) -> None:
        self.finish_step()
        resume(saved, self.buckets, self.engine, self.job, strict=strict)

    def finish_step(self) -> None:
        """Open all gates, which applies the updates that they put off."""
        if self.gates is not None:
            self.gates.open_all()

    def joinable(self) -> ReducingSession:
        """Return this session; UsageError for owners that update, for parameter servers, and for policies that keep or round what a
        finished rank would have to leave out."""
        check_joinable(self.owners, self.source)
        return self

    def retire(self) -> None:
        self.source.retire()
        self.companion.retire()
        self.flush()
        self.owners.release()
        for each in self.launches:
            self._libraries.forget(each.program)
        bucket_memory.unload(self.launches, self.engine)
        if isinstance(self._votes, Votes):
            self._votes.unload()
        self._together.end()
        self.buckets, self.launches, self.gates = [], [], None

    def close(self) -> None:
        """Apply outstanding updates, and stop the threads beside training."""
        if self.gates is not None and self.gates.closed:
            # Others need our part of the last step; a job that has failed was reported already.
            with contextlib.suppress(PeerError):
                self.gates.open_all()
        if self.source.served is not None:
            with contextlib.suppress(PeerError):
                self.source.served.leave()
        if self.source.helpers is not None:
            with contextlib.suppress(PeerError):
                self.source.helpers.leave()
        self.source.stop()

    @property
    def _watch(self) -> Stopwatch | None:
        """Stopwatch of the autopilot, if there is one."""
        return None if self.source.autopilot is None else self.source.autopilot.watch

    def _time_step(self) -> None:
        if self._watch is not None:
            self._watch.stepped()

    def _load(self) -> None:
        """Load buckets, programs and hooks of the current epoch."""
        old = self.buckets
        self.owners.release()
        buckets = self.source.buckets()
        number = self.source.epochs.current.number
        self.buckets = self._placed(buckets, number)
        states.put(states.held(old, self.engine, self.job.rank), self.buckets, self.engine, self.job.rank)
        before, self.launches = self.launches, launches_of(self.buckets)
        self._rows = [each.rows for each in self.launches if each.rows is not None]
        self._learn()
        if not old and self.source.served is not None:
            self.source.served.start(self.buckets)
        if self.source.helpers is not None:
            lengths = {
                each.number: [stop - start for start, stop in each.runs]
                for each in self.launches
                if each.compiled.helped
            }
            self.source.helpers.loaded(self.source.plan(self.source.epochs.current), lengths, number)
        self._count_gradients()
        self.owners.take(self.buckets)
        for bucket in self.buckets if old else ():
            self.owners.reduced(bucket)
        ended = [each for each in before if each not in self.launches]
        for each in ended:
            self._libraries.forget(each.program)
        bucket_memory.unload(ended, self.engine)
        self._loaded(self.source, self.buckets)

    def _learn(self) -> None:
        """Learn which calls of libraries the programs make."""
        for each in self.launches:
            if each.compiled.number is None:
                self._libraries.learn(each.program, each.compiled.program)

    def _count_gradients(self, places: Places | None = None, *, moves: bool = True) -> None:
        """Count gradients by the loaded launches. `moves`: gradients that exist are in other memory than the buckets'."""
        self.readiness = _native.Readiness(
            self.engine,
            [(launch.program, len(launch.compiled.ranges)) for launch in self.launches],
            self._on_first,
            self._adopt,
            self._twice,
            self._on_refused,
            self._launches_by(),
            places,
        )
        self._decide()
        self.hooks = Hooks(self.buckets, self.readiness)
        self.framework.hook(self.buckets, self.hooks, moves=moves)

    def _placed(self, buckets: Sequence[CompiledBucket], epoch: int) -> list[LoadedBucket]:
        array = self.framework.array
        return bucket_memory.load(
            buckets, self.engine, array, epoch=epoch, rank=self.job.rank, before=self.buckets
        )

    def _launches_by(self) -> Schedule | None:
        """Return when buckets are launched; None: each in every iteration."""
        return None

    def _gate(self) -> Gates:
        names = [bucket.names for bucket in self.buckets]
        return self.framework.gate(names, self._wait_bucket, self.owners)

    def _on_first(self) -> None:
        if os.getpid() != self._owner:
            raise UsageError(
                "backward in a forked child of the process that distributed the model\n"
                "hint: train in the process that called `distribute`"
            )
        self.framework.check_in_place(self._filling())
        self._begin()
        if self.gates is not None:
            self.gates.backward_began()
        self.framework.when_backward_ends(self._on_end)

    def _begin(self) -> None:
        self._under_way = True
        if self._watch is not None:
            self.readiness.timed = self._watch.began()
        self._libraries.expect(self.programs)
        if self.source.served is not None:
            self.source.served.begin(self.iteration)
        if self.source.helpers is not None:
            self.source.helpers.begin(self.source.epochs.current.number)
        self.owners.hold()
        with self._naming_the_finished():
            self.companion.begin()

    def _adopt(self, launch: int, index: int, parameter: object) -> None:
        rows = self.launches[launch].rows
        if rows is None or not rows.sparse:
            super()._adopt(launch, index, parameter)
        if rows is not None and self.readiness.enabled:
            if rows.packed:
                # Rows in flight lie in the same memory.
                self._twice(launch, index)
            rows.pack(self.framework)

    def _on_end(self) -> None:
        """End backward: launch buckets that are incomplete as they are, then wait for all buckets, or close the gates."""
        self._owed = max(self._owed - 1, 0)
        self._end(barrier=self.gates is None or self.companion.barrier)
        self._decide()
        if self.gates is not None:
            self.gates.backward_ended()

    def idle_step(self) -> None:
        """Take part in a step of the other ranks to which this rank has nothing to add."""
        self.drop_gradients()
        self._begin()
        self._together.idles = True
        self._end(barrier=True)
        self._together.idles = False

    def _end(self, *, barrier: bool) -> None:
        began_ns = _native.now_ns()
        if self._watch is not None:
            touched = {rows.gradient.name: rows.touched for rows in self._rows}
            self._watch.computed(self._arrivals() if self._watch.profiles else {}, touched)
        self.framework.check_announced()
        seen = self.readiness.order() if self.source.observes else None
        unmade = self._adopt_missing()
        with self._naming_the_finished():
            meet = self.companion.end()
            self._vote(unmade, meet=meet)
            self._unmade, self._counted, self._waited = set(unmade), False, set()
            self.readiness.finish()
            for rows in self._rows:
                rows.packed = False
            self.companion.launched(waits=barrier)
        if barrier or not self.source.epochs.settled:
            self._wait_all()
            ended_ns = _native.now_ns()
            self.source.record("wait_time", (ended_ns - began_ns) * 1e-9)
            if self._begins:
                self._load()
                # Reduced gradients are in the new buckets, which need no wait.
                self._waited = set(range(len(self.buckets)))
                if self.gates is not None:
                    self.gates = self._gate()
        if seen is not None:
            self._agree_on_order(seen)
        self._under_way = False
        self._note()
        if self.spans is not None:
            self.spans.waited(self.iteration, began_ns, _native.now_ns())
        self.companion.step_ended()
        self.iteration += 1
        if self.source.autopilot is not None:
            self.source.autopilot.step_ended()

    def _vote(self, unmade: Sequence[str], *, meet: bool, retreat: bool = False) -> None:
        """Cast this rank's votes at the end of a backward."""
        look, dense = self._together.vote(self.iteration), dense_names(self._rows)
        epoch = self.source.epochs.vote()
        self._votes.cast(epoch, unmade, meet=meet, retreat=retreat, dense=dense, look=look)

    def _arrivals(self) -> dict[str, int]:
        """Return when each gradient of this backward came, in nanoseconds."""
        return {self.hooks.gradient(*place)[0]: time_ns for place, time_ns in self.readiness.times()}

    def _adopt_missing(self) -> list[str]:
        """Return the parameters without a gradient on this rank. A gradient accumulated before this backward counts, and so do
        zeros that the script has left: the optimizer steps on them."""
        unmade = []
        # A gradient whose parts travel apart has each part missing.
        missing = {self.hooks.gradient(*place)[0]: place for place in self.readiness.missing()}
        for name, place in missing.items():
            _, view = self.hooks.gradient(*place)
            rows = self.launches[place[0]].rows
            if self.framework.gradient(name) is None:
                unmade.append(name)
            if rows is None or not rows.sparse:
                self.framework.adopt(name, view)
            if rows is not None:
                rows.pack(self.framework)
        return unmade

    def _agree_on_order(self, seen: list[tuple[int, int]]) -> None:
        """Agree on the order of rank 0's gradients after the first step; gradients that did not come keep their assumed order."""
        mine = None
        if self.job.rank == 0:
            names = [self.hooks.gradient(launch, index)[0] for launch, index in seen]
            mine = list(dict.fromkeys([*names, *bucket_memory.assumed_backward(self._gradients)]))
        job = self.job
        order = job.store.gather("backward", job.rank, job.world, mine, job.settings.timeout_s)[0]
        self.source.observed(tuple(order))

    def _wait_all(self) -> None:
        for bucket in range(len(self.buckets)):
            self._wait_bucket(bucket)

    def _wait_bucket(self, bucket: int) -> None:
        """Wait until a bucket is reduced; gradients that no rank made become None."""
        if bucket in self._waited:
            return
        own = self.buckets[bucket]
        timeout_s = self.job.settings.timeout_s + (PATIENCE_S if own.served else 0.0)
        with self._naming_the_finished():
            for launch in own.launches:
                self.readiness.wait(launch.number, timeout_s)
            if not self._counted:
                self._begins = self.source.decide(self._votes.count(timeout_s))
                self._counted = True
                self._together.counted(self._votes)
                self.companion.arrive()
                if self._votes.meet:
                    self.companion.meet()
                self._begin_dense()
            self._finish_rows(own)
        self._waited.add(bucket)
        self.companion.reduced(own)
        self.owners.reduced(own)
        for name in own.names:
            if name in self._unmade and not self._votes.made(name):
                self.framework.drop(name)
        if self.source.served is not None and own.served:
            self.source.served.take(own)
        for launch in own.launches:
            self.readiness.applied(launch.number)
        if len(self._waited) == len(self.buckets) and not self._warned:
            self._warn_of_non_finite()

    def _stepped(self) -> None:
        """Let owners send the values that the optimizer has updated, unless gates have put the step off."""
        if self.owners and not (self.gates is not None and self.gates.closed):
            self.owners.stepped()

    def _begin_dense(self) -> None:
        """Run dense programs on all ranks when votes are counted, whichever bucket each rank waits for first."""
        for launch in self.launches:
            if launch.rows is not None and self._votes.dense(launch.rows.gradient.name):
                self.readiness.wait(launch.number, self.job.settings.timeout_s)
                launch.rows.begin_dense(self.iteration)

    def _finish_rows(self, bucket: LoadedBucket) -> None:
        for rows in (launch.rows for launch in bucket.launches if launch.rows is not None):
            name = rows.gradient.name
            if self._votes.made(name):
                rows.finish(self.framework, self.job.settings.timeout_s, dense=self._votes.dense(name))

    def _note(self) -> None:
        """Record statistics of the step that ends."""
        if self.source.timer is None:
            return
        self._steps.note()
        # No rank has the norm of gradients that have owners.
        if (
            self.gates is None
            and not self.owners
            and (given := self._given())
            and self.source.timer.wants_norm()
        ):
            squares = sum(squared_norm(bucket, self.framework) for bucket in given)
            self.source.record("gradient_norm", math.sqrt(squares))

    def _filling(self) -> Sequence[LoadedBucket]:
        """Buckets that backward adds to."""
        return self.buckets

    def _given(self) -> list[LoadedBucket]:
        """Buckets that the optimizer is to read."""
        return self.buckets

    @contextlib.contextmanager
    def _naming_the_finished(self) -> Iterator[None]:
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
        if not isinstance(error, PeerError) or error.rank is None or error.rank == self.job.rank:
            return False
        if error.rank >= self.job.world:  # a server has not finished its data: it has none
            return False
        if self.source.timer is not None:
            self.source.timer.worker_removed(error.rank)
        if error.why == "left":
            how = f"ended after {self.iteration} iterations and left"
            if error.exit_code:
                how = f"exited with code {error.exit_code} after {self.iteration} iterations"
            raise error.reworded(
                f"rank {error.rank} on {error.host} {how}, while rank "
                f"{self.job.rank} on {self.job.host} is in iteration {self.iteration + 1} ({error})\n"
                f"hint: see how the script of rank {error.rank} ended, and with which exit code; if it had fewer batches, "
                f"{self.framework.hints.unequal_batches}"
            ) from None
        return False

    def _warn_of_non_finite(self) -> None:
        self._warned = warn_of_non_finite(
            self.engine,
            self.launches,
            who=f"rank {self.job.rank} on {self.job.host}",
            counted_in=self.counted_in,
            hint=self.framework.hints.non_finite,
        )
