"""Gradients and their sums, in memory of their own: an aborted step leaves the gradients as they are, to be reduced again.

Programs are `retained`: they copy gradients to where they are summed up. Sums become the gradients when their step stands. This
costs the gradients' memory once more, and reads and writes them twice in a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hocket import _native
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.training.arenas import arenas_of
from hocket.training.buckets import CompiledBucket, Launch, LoadedBucket, over, parts_of
from hocket.training.gathered import MakeArray


@dataclass(frozen=True, eq=False)
class Area:
    """A bucket's gradients, as `bucket` has them, the numbers of its launches, and where they are summed up."""

    bucket: LoadedBucket
    numbers: tuple[int, ...]
    sums: _native.Memory

    def take(self) -> None:
        """The sums are the gradients."""
        np.copyto(
            np.frombuffer(memoryview(self.bucket.memory), np.uint8),
            np.frombuffer(memoryview(self.sums), np.uint8),
        )


def areas_of(buckets: Sequence[CompiledBucket], engine: _native.Engine, array: MakeArray) -> list[Area]:
    """Memory for these buckets; it is the same whatever the members are."""
    gradients = {each.name: each for bucket in buckets for each in bucket.gradients}
    made = []
    for arena in arenas_of([parts_of(bucket) for bucket in buckets], gradients):
        size = sum(each.bytes for each in arena.gradients)
        bucket = over(arena.gradients, engine.allocate(size), array)
        made.append(Area(bucket, arena.numbers, engine.allocate(size)))
    return made


def loaded(
    areas: Sequence[Area], buckets: Sequence[CompiledBucket], engine: _native.Engine, label: str
) -> list[LoadedBucket]:
    """Programs of these buckets in the engine's epoch; in the same order on all ranks."""
    gradients = {each.name: each for bucket in buckets for each in bucket.gradients}
    arenas = {each.numbers: each for each in arenas_of([parts_of(bucket) for bucket in buckets], gradients)}
    found = []
    for area in areas:
        launches = []
        for number in area.numbers:
            compiled = buckets[number]
            runs = arenas[area.numbers].runs(parts_of(compiled)) or ((0, 0),)
            item = ITEM_BYTES[compiled.dtype]
            given = {at: (area.bucket.memory, start * item) for at, (start, _) in enumerate(runs)}
            sums = {len(runs) + at: (area.sums, start * item) for at, (start, _) in enumerate(runs)}
            program = engine.load(
                compiled.program.retained(),
                {**given, **sums},
                priority=compiled.priority,
                label=f"bucket {number}{label}",
                kernels=compiled.kernels,
            )
            launches.append(Launch(compiled, program, number, runs))
        found.append(replace(area.bucket, launches=tuple(launches)))
    return found
