"""Session of a model whose gradients come out of compiled functions. A framework's runtime lends each gradient to a native group,
which gives the mean back. Python runs once per execution of the function, which is a *turn*.

Executions are dispatched ahead of the runtime, so ranks agree one turn late: each rank votes when it dispatches a turn, and votes
are counted before the next. An epoch begins between two turns, when the runtime has the means of all turns before.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping

from hocket import _native
from hocket.artefacts.gradient import Gradient
from hocket.errors import PeerError, UsageError
from hocket.policy.policy import Value
from hocket.training.checkpoint import states
from hocket.training.checkpoint.resume import resume
from hocket.training.checkpoint.saved import SavedSession
from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.buckets import Launch, LoadedBucket, launches_of
from hocket.training.step.place import Place
from hocket.training.step.statistics import Steps, warn_of_non_finite
from hocket.training.step.votes import Votes

PATIENCE_S = 1.0
"""Seconds beyond the time-out: the group's own deadline comes first, and its error names what is missing."""

GradientPlace = tuple[_native.Memory, int, list[tuple[int, int]]]
"""Place of a gradient: memory, its first byte there, and (launch, index) of each of its parts."""


class CompiledSession:
    """Engine, buckets and turns of one distributed model."""

    def __init__(
        self,
        gradients: Mapping[str, Gradient],
        place: Place,
    ) -> None:
        """Make the buckets and load the programs of a source that `check_able` lets pass. UsageError: the policy leaves a
        gradient out."""
        self.job, self.engine, self.source, self.spans = place.job, place.engine, place.source, place.spans
        job, engine, source = self.job, self.engine, self.source
        self._gradients = dict(gradients)
        self._libraries, self._loaded = place.libraries, place.loaded
        self._timeout_s = job.settings.timeout_s
        self._owner = os.getpid()
        self._turn = 0
        self._voted = self._warned = self._closed = False
        self._votes = Votes(engine, job.hosts, list(self._gradients), rank=job.rank)
        self._steps = Steps(engine, source)
        sizes = [(each.name, each.bytes) for each in self._gradients.values()]
        self.group = _native.Group(engine, sizes, self._timeout_s)
        self.buckets: list[LoadedBucket] = []
        self.launches: list[Launch] = []
        self._load()

    def start(self) -> None:
        """Start the threads beside training."""
        self.source.start_timer()

    def close(self) -> None:
        """Finish the turns that were dispatched, since other ranks need this rank's part of them; then stop. Idempotent."""
        if self._closed:
            return
        self._closed = True
        # A job that has failed was reported already.
        with contextlib.suppress(PeerError):
            self._wait()
        self.group.close()
        self.source.stop()

    def record(self, name: str, value: float) -> None:
        """Record a statistic for the policy."""
        self.source.record(name, value)

    def agreed(self) -> Mapping[str, Value]:
        """Return the values on which all ranks agree in the current epoch, and its number as `epoch`."""
        return self.source.agreed()

    def saved(self) -> SavedSession:
        """Return this rank's state beside parameters and optimizer state, to resume bit for bit. All call it between turns.

        PeerError: the job has failed.
        """
        self._wait()
        return SavedSession.of(states.held(self.buckets, self.engine, self.job.rank), self.job)

    def restore(self, saved: SavedSession, *, strict: bool) -> None:
        """Resume from a saved state, before the first turn. All ranks call it. `strict`: no state is missing, none is left over.

        UsageError: the state belongs to something else, or a turn has begun.
        """
        if self._turn:
            raise UsageError(
                f"load_state_dict: rank {self.job.rank} has begun turn {self._turn - 1}\n"
                "hint: load before the first step"
            )
        resume(saved, self.buckets, self.engine, self.job, strict=strict)

    @contextlib.contextmanager
    def execution(self) -> Iterator[int]:
        """Context of each dispatch of a function that makes all gradients once; yields its turn. All ranks dispatch the same
        functions. A dispatch that raises does not count as a turn.

        PeerError: the job has failed. UsageError: this is a forked child of the process that distributed the model.
        """
        if os.getpid() != self._owner:
            raise UsageError(
                "a step in a forked child of the process that distributed the model\n"
                "hint: train in the process that called `distribute`"
            )
        with self._naming_the_finished():
            if self._voted:
                self._agree()
            self._votes.cast(self.source.epochs.vote(), (), meet=False)
            self._voted = True
        self._libraries.expect([launch.program for launch in self.launches])
        self.group.begin(self._turn)
        yield self._turn
        self._turn += 1
        self.job.progress.step_ended()
        self._steps.note()

    def _agree(self) -> None:
        """Count the votes of the last turn, between two turns; an epoch begins if all ranks know it."""
        begins = self.source.decide(self._votes.count(self._timeout_s))
        observes = self.source.observes and self._turn > 0
        if begins or observes:
            self._wait()
        if begins:
            self._load()
        if observes:
            self._agree_on_order()
        if not self._warned:
            who = f"rank {self.job.rank} on {self.job.host}"
            self._warned = warn_of_non_finite(self.engine, self.launches, who=who, counted_in="turn")

    def _wait(self) -> None:
        """Wait until the runtime has the means of all turns that were dispatched."""
        self.group.wait(self._turn, self._timeout_s + PATIENCE_S)

    def _agree_on_order(self) -> None:
        """Agree on the order in which rank 0's gradients came in the first turn."""
        mine = None
        if self.job.rank == 0:
            names = list(self._gradients)
            mine = [names[leaf] for leaf in self.group.order()]
        job = self.job
        order = job.store.gather("backward", job.rank, job.world, mine, self._timeout_s)[0]
        self.source.observed(tuple(order))

    def _load(self) -> None:
        """Load buckets and programs of the current epoch."""
        old, before = self.buckets, self.launches
        number = self.source.epochs.current.number
        made = self.source.buckets()
        self.buckets = bucket_memory.load(made, self.engine, _no_array, epoch=number, rank=self.job.rank)
        states.put(states.held(old, self.engine, self.job.rank), self.buckets, self.engine, self.job.rank)
        self.launches = launches_of(self.buckets)
        for each in self.launches:
            self._libraries.learn(each.program, each.compiled.program)
        counts = [(launch.program, len(launch.compiled.ranges)) for launch in self.launches]
        self.group.load(counts, self._places())
        for each in before:
            self._libraries.forget(each.program)
        bucket_memory.unload(before, self.engine)
        self._loaded(self.source, self.buckets)
        plan = self.source.plan(self.source.epochs.current)
        self.job.progress.planned(epoch=number, plan=plan.label, promise=plan.promise)

    def _places(self) -> list[GradientPlace]:
        """Return the place of each gradient."""
        parts: dict[str, list[tuple[int, int]]] = {}
        for at, launch in enumerate(self.launches):
            for index, (name, _, _) in enumerate(launch.compiled.ranges):
                parts.setdefault(name, []).append((at, index))
        found: dict[str, GradientPlace] = {}
        for bucket in self.buckets:
            starts = itertools.accumulate((each.bytes for each in bucket.gradients), initial=0)
            for each, start in zip(bucket.gradients, starts, strict=False):
                found[each.name] = bucket.memory, start, parts[each.name]
        left_out = next((name for name in self._gradients if name not in found), None)
        if left_out is not None:
            raise UsageError(
                f"the policy leaves the gradient of `{left_out}` out, which a compiled function waits for\n"
                "hint: a policy that puts each gradient into a bucket"
            )
        return [found[name] for name in self._gradients]

    @contextlib.contextmanager
    def _naming_the_finished(self) -> Iterator[None]:
        try:
            yield
        except PeerError as error:
            if error.rank is None or error.rank == self.job.rank:
                raise
            if self.source.timer is not None:
                self.source.timer.worker_removed(error.rank)
            if error.why == "left":
                how = f"exited with code {error.exit_code}" if error.exit_code else "ended and left"
                raise error.reworded(
                    f"rank {error.rank} on {error.host} {how}, while rank {self.job.rank} on {self.job.host} begins "
                    f"turn {self._turn} ({error})\nhint: see how its script ended; if it had fewer batches, give every rank the "
                    "same number"
                ) from None
            raise


def _no_array(*_: object) -> None:
    """Return no array: results go back to the runtime's own memory, and nobody reads the buckets themselves."""
