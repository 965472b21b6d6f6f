"""Buckets that their owners alone update (as in ZeRO): owners receive gradients, the optimizer steps there, all ranks receive
values.

Parameters of such buckets lie in memory beside their gradients, in the same order, so that nothing is copied. Their optimizer state
exists at their owners alone; `whole` brings it together for checkpoints and for other plans. All methods but `reduced` are called
by all ranks, in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager

import numpy as np

from hocket import _native
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import AllReduce
from hocket.job.rendezvous import Job
from hocket.planning.compile import all_reduce_program
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.device import made, received, staged
from hocket.training.memory.framework import Array, Framework
from hocket.training.memory.shards import State, agreed, ranges


class Owners:
    """Owners of a model's parameters in the current epoch."""

    def __init__(
        self,
        framework: Framework,
        engine: _native.Engine,
        job: Job,
        naming: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Begin without owners. `naming`: context of each wait, which adds to its errors."""
        self._framework, self._engine, self._job, self._naming = framework, engine, job, naming
        self._all: tuple[LoadedBucket, ...] = ()
        self._buckets: tuple[LoadedBucket, ...] = ()
        self.in_join: Callable[[float, float], None] | None = None
        """Function to call, within `join`, before what owners have is clipped, with the limit and the type of norm."""
        self._norms: tuple[int, np.ndarray[tuple[int], np.dtype[np.float64]]] | None = None

    def __bool__(self) -> bool:
        """Return whether owners update anything."""
        return bool(self._buckets)

    def take(self, buckets: Sequence[LoadedBucket]) -> None:
        """Move the parameters of buckets that were loaded into memory; the optimizer steps only those that this rank updates.

        UsageError: the optimizer cannot step a part of a parameter.
        """
        self._all = tuple(buckets)
        self._buckets = tuple(bucket for bucket in buckets if bucket.values is not None)
        if not self._buckets:
            return
        own = ranges(self._buckets, self._job.rank)
        self.hold()
        self._framework.division.divide(self._buckets, own)

    def hold(self) -> None:
        """Put parameters that owners update into memory, also those that the script has moved."""
        if self._buckets:
            self._framework.hold_parameters(
                [bucket.values for bucket in self._buckets if bucket.values is not None]
            )

    def release(self) -> None:
        """Make gradients that were reduced, and the optimizer state, whole on all ranks before buckets change."""
        if not self._buckets:
            return
        for bucket in self._buckets:
            self._spread(bucket, bucket.memory)
        self._framework.division.undivide(self.whole())
        self._buckets = ()

    def share(self) -> None:
        """Give ranks that have just met the optimizer state of what each is to step: where a job keeps its ranks, none do."""

    def reduced(self, bucket: LoadedBucket) -> None:
        """Note that owners have the means of a bucket's gradients, of which no rank has all."""
        if bucket.values is not None:
            self._framework.division.reduced(bucket)

    def stepped(self) -> None:
        """Exchange values after the optimizer has stepped this rank's part: return when all ranks have each other's."""
        for bucket in range(len(self._all)):
            self.send(bucket)
        for bucket in range(len(self._all)):
            self.receive(bucket)

    def ready(self, bucket: int) -> bool:
        own = self._all[bucket]
        return own.values is not None and all(self._engine.is_complete(each.program) for each in own.launches)

    def send(self, bucket: int) -> None:
        made(self._framework.device, _values(self._all[bucket]))
        for program in _programs(self._all[bucket]):
            self._engine.launch(program)

    def receive(self, bucket: int) -> None:
        self._wait(_programs(self._all[bucket]))
        received(self._framework.device, _values(self._all[bucket]))

    def whole(self) -> dict[str, State]:
        """Return the optimizer state of all parameters of which owners update something."""
        shards = self._framework.division.shards()
        told = {each.name: (sorted(each.state.arrays), each.state.scalars) for each in shards}
        job = self._job
        found = agreed(job.store.gather("owners/state", job.rank, job.world, told, job.settings.timeout_s))
        for bucket in self._buckets:
            own = [name for name in bucket.names if name in found]
            for key in sorted({key for name in own for key in found[name].arrays}):
                memory = self._engine.allocate(len(bucket.memory))
                flat = self._flat(bucket, memory)
                for each in shards:
                    if each.name in flat and key in each.state.arrays:
                        flat[each.name][each.start : each.stop] = each.state.arrays[key]
                self._spread(bucket, memory)
                for name in own:
                    if key in found[name].arrays:
                        found[name].arrays[key] = flat[name]
        return found

    def numbers(self, own: Callable[[], float]) -> list[float]:
        """Return the number that each rank gives by `own`, by rank, the same on all."""
        job = self._job
        if self._norms is None:
            memory = self._engine.allocate(job.world * ITEM_BYTES["f64"])
            program = all_reduce_program(
                world=job.world,
                elements=job.world,
                dtype="f64",
                op="sum",
                scale=1.0,
                route=AllReduce(algorithm="halving_doubling"),
            )
            number = self._engine.load(program, {0: (memory, 0)}, priority=0, label="norms")
            self._norms = number, np.frombuffer(memoryview(memory), np.float64)
        number, values = self._norms
        values[:] = 0
        values[job.rank] = own()
        self._engine.launch(number)
        self._wait([number])
        return [float(each) for each in values]

    def _wait(self, programs: Iterable[int]) -> None:
        with self._naming():
            for program in programs:
                self._engine.wait(program, self._job.settings.timeout_s)

    def _flat(self, bucket: LoadedBucket, memory: _native.Memory) -> dict[str, Array]:
        """Return each gradient's elements in memory laid out like the bucket's."""
        flat, start = {}, 0
        for each in bucket.gradients:
            flat[each.name] = self._framework.array(memory, start, each.dtype, (each.elements,))
            start += each.bytes
        return flat

    def _spread(self, bucket: LoadedBucket, memory: _native.Memory) -> None:
        """Send the owners' parts, in memory laid out like the bucket's, to all ranks."""
        device, programs = self._framework.device, []
        for launch in bucket.launches:
            if launch.compiled.values is not None:
                bound = launch.bound(memory)
                own, numbered = staged(launch.compiled.values.program, bound, device)
                label = "what owners have"
                programs.append(self._engine.load(own, numbered(bound), priority=0, label=label))
        made(device, [memory])
        for program in programs:
            self._engine.launch(program)
        self._wait(programs)
        received(device, [memory])
        for program in programs:
            self._engine.unload(program)


def _values(bucket: LoadedBucket) -> list[_native.Memory]:
    """Memory of a bucket's values, if owners update it."""
    return [] if bucket.values is None else [bucket.values.memory]


def _programs(bucket: LoadedBucket) -> list[int]:
    """Programs that bring a bucket's values."""
    return [launch.values for launch in bucket.launches if launch.values is not None]
