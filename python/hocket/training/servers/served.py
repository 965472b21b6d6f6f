"""Worker's half of the buckets that parameter servers hold: it pushes gradients, and values come back in their place.

A step begins with a header, upon which each server launches its part of the worker's programs; a bucket's own program is launched
when its gradients are there, like any other bucket's. `hocket.training.servers.serve` is the other half.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hocket import _native
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Bucket, Plan, Served
from hocket.artefacts.trace import LoadedProgram, Roles
from hocket.errors import PeerError
from hocket.parameter_server import programs
from hocket.parameter_server.choice import with_roles
from hocket.parameter_server.description import Description, Segment, key_of
from hocket.training.memory.arenas import arenas_of, arranged
from hocket.training.memory.buckets import CompiledBucket, LoadedBucket
from hocket.training.memory.framework import Remote
from hocket.training.process import Process
from hocket.training.servers.rest import begin_training, end_training
from hocket.training.servers.serve import LEAVE, REST, STEP, description_key

PATIENCE_S = 1.0
"""Seconds beyond the time-out: a server that holds a value back knows the late worker, and must be able to report it first."""


class ServedBuckets:
    """Served buckets of a plan, for one worker."""

    def __init__(
        self, plan: Plan, gradients: Mapping[str, Gradient], remote: Remote, process: Process
    ) -> None:
        """Agree with all workers on the servers' description. UsageError: workers describe different trainings."""
        self._process, self._remote = process, remote
        self._job, self._engine = process.job, process.engine
        self._settings = process.job.settings
        training = begin_training(process)
        mine = describe(plan, gradients, remote, training=training)
        programs.check_numbers(mine)
        store = process.job.store
        if self._job.rank == 0:
            store.set(description_key(training), mine.text())
        told = store.get(description_key(training), self._settings.start_timeout_s)
        self.description = Description.of_text(told)
        self.description.check_same(mine, self._job.rank)
        self._step = programs.step_number(self.description, self._job.rank)
        self._left = False
        memory = self._engine.allocate(self.description.header_elements * ITEM_BYTES["f64"])
        self._header = memoryview(memory).cast("B").cast("d")
        step = programs.step_program(self.description, self._job.rank)
        label = f"step of worker {self._job.rank}"
        self._engine.load(step, {0: (memory, 0)}, priority=0, label=label, number=self._step)

    def programs(self) -> dict[int, CompiledBucket]:
        """Return the programs by the number of their bucket, ready to be loaded."""
        description, worker = self.description, self._job.rank
        made = {}
        for at, key in description.keys.items():
            program = programs.key_program(description, at, worker).part(worker)
            number = programs.key_number(description, at, worker)
            made[at] = CompiledBucket((), key.priority, program, number=number)
        return made

    def start(self, buckets: Sequence[LoadedBucket]) -> None:
        """Make worker 0's parameters the servers' first values, and all workers'."""
        own = [bucket for bucket in buckets if bucket.served]
        if self._job.rank == 0:
            for bucket in own:
                for name, view in zip(bucket.names, bucket.views, strict=True):
                    self._remote.give(name, view)
        begins = {
            id(bucket): [
                self._first(launch.number, launch.bound(bucket.memory)) for launch in bucket.launches
            ]
            for bucket in own
        }
        for number in (each for numbers in begins.values() for each in numbers):
            self._engine.launch(number)
        for bucket in own:
            for number in begins[id(bucket)]:
                # The others may still be starting.
                self._wait(number, self._settings.start_timeout_s)
            self.take(bucket)
        for number in (each for numbers in begins.values() for each in numbers):
            self._engine.unload(number)

    def _first(self, key: int, bound: Mapping[int, tuple[_native.Memory, int]]) -> int:
        """Load the program by which a key's first value comes; return its number."""
        description, worker = self.description, self._job.rank
        return self._engine.load(
            programs.first_program(description, key, worker).part(worker),
            bound,
            priority=description.keys[key].priority,
            label=f"first value of {description.keys[key].name}, worker {worker}",
            number=programs.first_number(description, key, worker),
            cards=description.keys[key].cards,
        )

    def begin(self, iteration: int) -> None:
        """Begin a step: send the servers a header with the optimizer's numbers."""
        self._wait(self._step)
        self._header[0], self._header[1] = STEP, iteration
        for at, number in enumerate(self._remote.numbers(), 2):
            self._header[at] = number
        self._engine.launch(self._step)

    def take(self, bucket: LoadedBucket) -> None:
        """Give the parameters of a bucket the values that have come, and no gradient for the optimizer."""
        for name, view in zip(bucket.names, bucket.views, strict=True):
            self._remote.take(name, view)

    def dismiss(self) -> None:
        """Let the servers end this training, and wait until they have; this worker's values have come."""
        self._end(REST)
        self._engine.unload(self._step)
        end_training(self._process)

    def leave(self) -> None:
        """Tell the servers that this worker leaves; its values have come."""
        if not self._left:
            self._left = True
            self._end(LEAVE)

    def _end(self, kind: float) -> None:
        self._wait(self._step)
        self._header[0] = kind
        self._engine.launch(self._step)
        self._wait(self._step)

    def named(self, error: PeerError) -> PeerError:
        """Return the error with a server at fault named as one."""
        return with_roles(error, self.description.workers)

    def loaded(self) -> tuple[LoadedProgram, ...]:
        """Return the programs of all workers, for the trace."""
        description = self.description
        steps = (
            LoadedProgram(program=programs.step_number(description, worker), label=f"step of worker {worker}")
            for worker in range(description.workers)
        )
        keys = (
            LoadedProgram(
                program=number(description, at, worker),
                label=f"{key.name}, worker {worker}",
                bucket=at,
                worker=worker,
                bytes=key.elements * key.element_bytes,
            )
            for number in (programs.key_number, programs.first_number)
            for at, key in description.keys.items()
            for worker in range(description.workers)
        )
        return (*steps, *keys)

    @property
    def roles(self) -> Roles:
        description = self.description
        kept = {key.staleness for key in description.keys.values()}
        return Roles(
            workers=description.workers,
            servers=description.servers,
            staleness=kept.pop() if len(kept) == 1 else None,
        )

    def _wait(self, number: int, timeout_s: float | None = None) -> None:
        try:
            self._engine.wait(number, (timeout_s or self._settings.timeout_s) + PATIENCE_S)
        except PeerError as error:
            raise self.named(error) from None


def describe(
    plan: Plan, gradients: Mapping[str, Gradient], remote: Remote, *, training: int = 0
) -> Description:
    plan = arranged(plan, gradients)
    lengths: dict[int, tuple[int, ...]] = {}
    for arena in arenas_of([bucket.parts for bucket in plan.buckets], gradients):
        for at in arena.numbers:
            runs = arena.runs(plan.buckets[at].parts)
            lengths[at] = tuple(stop - start for start, stop in runs) if len(runs) > 1 else ()
    return Description(
        workers=len(plan.workers),
        servers=plan.world - len(plan.workers),
        optimizer=remote.kind,
        keys={
            at: key_of(
                bucket,
                bucket.route,
                len(plan.workers),
                segments=_segments(bucket, remote.group_of),
                lengths=lengths[at],
            )
            for at, bucket in enumerate(plan.buckets)
            if isinstance(bucket.route, Served)
        },
        groups=remote.groups,
        training=training,
    )


def _segments(bucket: Bucket, group_of: Mapping[str, int]) -> list[Segment]:
    segments: list[Segment] = []
    for part in bucket.parts:
        elements, group = (part.stop or 0) - part.start, group_of[part.variable]
        if segments and segments[-1].group == group:
            elements += segments.pop().elements
        segments.append(Segment(elements=elements, group=group))
    return segments
