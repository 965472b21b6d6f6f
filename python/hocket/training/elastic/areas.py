"""Gradients and their sums, each in memory of its own: an aborted step leaves the gradients as they are, to be reduced again.

Programs are `retained`: they copy gradients to where they are summed up. When a step stands, optimizers are shown the sums, and the
next backward adds to the gradients. This costs the gradients' memory once more, and reads and writes them once in a step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from hocket import _native
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.training.memory.arenas import arenas_of
from hocket.training.memory.buckets import CompiledBucket, Launch, LoadedBucket, over, parts_of
from hocket.training.memory.gathered import MakeArray


@dataclass(frozen=True, eq=False)
class Area:
    """Gradients of a bucket in its slots (`bucket`), the numbers of its launches, and where each slot is summed up."""

    bucket: LoadedBucket
    numbers: tuple[int, ...]
    sums: tuple[LoadedBucket, ...]


def areas_of(
    buckets: Sequence[CompiledBucket],
    engine: _native.Engine,
    array: MakeArray,
    slots: Sequence[int] | None = None,
) -> list[Area]:
    """Allocate memory for these buckets, independent of the members. `slots`: see `hocket.training.memory.buckets.load`."""
    gradients = {each.name: each for bucket in buckets for each in bucket.gradients}
    made = []
    for arena in arenas_of([parts_of(bucket) for bucket in buckets], gradients):
        size = sum(each.bytes for each in arena.gradients)
        count = 1 if slots is None else slots[arena.numbers[0]]
        first, *others = (over(arena.gradients, engine.allocate(size), array) for _ in range(count))
        sums = tuple(over(arena.gradients, engine.allocate(size), array) for _ in range(count))
        made.append(Area(replace(first, others=tuple(others)), arena.numbers, sums))
    return made


def loaded(
    areas: Sequence[Area], buckets: Sequence[CompiledBucket], engine: _native.Engine, label: str
) -> list[LoadedBucket]:
    """Load the programs of these buckets in the engine's epoch, in the same order on all ranks."""
    gradients = {each.name: each for bucket in buckets for each in bucket.gradients}
    arenas = {each.numbers: each for each in arenas_of([parts_of(bucket) for bucket in buckets], gradients)}
    found = []
    for area in areas:
        launches = []
        for number in area.numbers:
            compiled = buckets[number]
            runs = arenas[area.numbers].runs(parts_of(compiled)) or ((0, 0),)
            item = ITEM_BYTES[compiled.dtype]
            sets = [
                {at: (memory, runs[at % len(runs)][0] * item) for at, memory in enumerate(memories)}
                for memories in (
                    [slot.memory] * len(runs) + [sums.memory] * len(runs)
                    for slot, sums in zip(area.bucket.slots, area.sums, strict=True)
                )
            ]
            program = engine.load(
                compiled.program.retained(),
                sets[0],
                priority=compiled.priority,
                label=f"bucket {number}{label}",
                kernels=compiled.kernels,
                others=sets[1:],
            )
            launches.append(Launch(compiled, program, number, runs))
        others = tuple(replace(each, launches=tuple(launches)) for each in area.bucket.others)
        found.append(replace(area.bucket, launches=tuple(launches), others=others))
    return found
