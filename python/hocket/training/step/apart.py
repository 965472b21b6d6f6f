"""Gradients and their sums, each in memory of its own: an aborted step leaves the gradients as they are, to be reduced again, and a
rank that goes on with its own gradients while means are on their way still has them.

Programs are `retained`: they copy gradients to where they are summed up. When a step stands, optimizers are shown the sums, and the
next backward adds to the gradients. This costs the gradients' memory once more, and reads and writes them once in a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from msgspec.structs import replace as replaced

from hocket import _native
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.gradient import Gradient
from hocket.training.memory.arenas import Run, arenas_of
from hocket.training.memory.buckets import CompiledBucket, Launch, LoadedBucket, over, parts_of
from hocket.training.memory.device import Device, staged
from hocket.training.memory.framework import Framework
from hocket.training.memory.gathered import Rows
from hocket.training.step.memory import Memory
from hocket.training.step.place import Place


@dataclass(frozen=True, eq=False)
class Area:
    """Gradients of a bucket in its slots (`bucket`), the numbers of its launches, and where each slot is summed up."""

    bucket: LoadedBucket
    numbers: tuple[int, ...]
    sums: tuple[LoadedBucket, ...]

    def bound(self, runs: Sequence[Run], item: int) -> list[dict[int, tuple[_native.Memory, int]]]:
        """Return by slot the buffers that a program binds: runs of `item` bytes an element, of gradients and of their sums."""
        return [
            {at: (memory, runs[at % len(runs)][0] * item) for at, memory in enumerate(memories)}
            for memories in (
                [slot.memory] * len(runs) + [sums.memory] * len(runs)
                for slot, sums in zip(self.bucket.slots, self.sums, strict=True)
            )
        ]


class Laid(NamedTuple):
    """Memory that was allocated for these buckets."""

    buckets: Sequence[CompiledBucket]
    areas: Sequence[Area]


def laid(
    buckets: Sequence[CompiledBucket], engine: _native.Engine, framework: Framework, slots: Sequence[int]
) -> Laid:
    """Allocate memory for these buckets. `slots`: copies by bucket. In any thread, if the model is on no device."""
    gradients, array = _gradients(buckets), framework.array
    areas = []
    for arena in arenas_of([parts_of(bucket) for bucket in buckets], gradients):
        size = sum(each.bytes for each in arena.gradients)
        count = slots[arena.numbers[0]]
        first, *others = (over(arena.gradients, engine.allocate(size), array) for _ in range(count))
        sums = tuple(over(arena.gradients, engine.allocate(size), array) for _ in range(count))
        values = None
        if any(buckets[number].values is not None for number in arena.numbers):
            values = over(arena.gradients, engine.allocate(size), array)
        bucket = replace(first, values=values, others=tuple(others))
        areas.append(Area(bucket, arena.numbers, sums))
    return Laid(buckets, areas)


class Apart(Memory):
    """Memory of a session whose sums lie in other memory than gradients, independent of the members. `ahead`: memory that was
    allocated before the buckets with which it begins, or goes on."""

    def __init__(
        self,
        check: Callable[[Sequence[CompiledBucket]], None] | None = None,
        ahead: Laid | None = None,
    ) -> None:
        """`check`: raises UsageError for buckets that the session cannot have; None: it can have all."""
        super().__init__(told_apart=True)
        self._check, self.ahead = check, ahead
        self._areas: Sequence[Area] = ()
        self._device: Device | None = None

    @property
    def apart(self) -> bool:
        """True: sums lie elsewhere."""
        return True

    def placed(
        self,
        buckets: Sequence[CompiledBucket],
        place: Place,
        framework: Framework,
        slots: Sequence[int],
        _before: Sequence[LoadedBucket],
    ) -> list[LoadedBucket]:
        if self._check is not None:
            self._check(buckets)
        ahead, self.ahead = self.ahead, None
        if ahead is not None and ahead.buckets is buckets:
            self._areas = ahead.areas
        else:
            self.lay_out(buckets, place.engine, framework, slots)
        epoch = place.source.epochs.current.number
        self._device = framework.device
        return self.loaded(buckets, place.engine, place.job.rank, f" of epoch {epoch}" if epoch else "")

    def sums(self, _placed: Sequence[LoadedBucket], _framework: Framework) -> list[tuple[LoadedBucket, ...]]:
        return [area.sums for area in self._areas]

    def lay_out(
        self,
        buckets: Sequence[CompiledBucket],
        engine: _native.Engine,
        framework: Framework,
        slots: Sequence[int],
    ) -> None:
        """Allocate memory for these buckets. `slots`: copies by bucket."""
        self._areas = laid(buckets, engine, framework, slots).areas

    def loaded(
        self, buckets: Sequence[CompiledBucket], engine: _native.Engine, rank: int, label: str
    ) -> list[LoadedBucket]:
        """Load the programs of these buckets in the engine's epoch, in the same order on all ranks. Rows have blocks for its
        ranks, of which this is one: its own gradient's are to be packed again."""
        parts = [parts_of(bucket) for bucket in buckets]
        arenas = {each.numbers: each for each in arenas_of(parts, _gradients(buckets))}
        found = []
        for area in self._areas:
            launches = []
            for number in area.numbers:
                compiled = buckets[number]
                runs = arenas[area.numbers].runs(parts[number]) or ((0, 0),)
                named, rows = f"bucket {number}{label}", None
                if compiled.rows is None:
                    sets = area.bound(runs, ITEM_BYTES[compiled.dtype])
                    own, numbered = staged(compiled.program.retained(), sets[0], self._device)
                else:
                    # A block is sent from, and others are written. Only a table is summed up.
                    rows = Rows(compiled.rows, engine, rank, area.sums[0].memory, self._device)
                    sets = [rows.bound]
                    own, numbered = staged(compiled.program, rows.bound, None)
                program = engine.load(
                    own,
                    numbered(sets[0]),
                    priority=compiled.priority,
                    label=named,
                    kernels=compiled.kernels,
                    others=[numbered(each) for each in sets[1:]],
                    cards=compiled.cards,
                )
                if rows is not None:
                    rows.load(priority=compiled.priority, label=named, cards=compiled.cards)
                launch = Launch(replaced(compiled, program=own), program, number, runs, rows=rows)
                if compiled.values is not None and area.bucket.values is not None:
                    bound = launch.bound(area.bucket.values.memory)
                    fanned, numbered = staged(compiled.values.program, bound, self._device)
                    values = engine.load(
                        fanned,
                        numbered(bound),
                        priority=compiled.priority,
                        label=f"values of bucket {number}{label}",
                        cards=compiled.cards,
                    )
                    launch = replace(launch, values=values)
                launches.append(launch)
            others = tuple(replace(each, launches=tuple(launches)) for each in area.bucket.others)
            found.append(replace(area.bucket, launches=tuple(launches), others=others))
        return found


class AsPlanned(Memory):
    """Memory in which sums lie apart under plans whose ranks train ahead of an anchor, and in gradients' place else."""

    def __init__(self, *, merges: bool) -> None:
        """`merges`: gradients may be merged or late."""
        super().__init__(told_apart=merges)
        self._apart: Apart | None = None

    @property
    def apart(self) -> bool:
        """True under such a plan."""
        return self._apart is not None

    def placed(
        self,
        buckets: Sequence[CompiledBucket],
        place: Place,
        framework: Framework,
        slots: Sequence[int],
        before: Sequence[LoadedBucket],
    ) -> list[LoadedBucket]:
        plan = place.source.plan(place.source.epochs.current)
        anchored = any(each.steps != "one" for each in (plan.schedule, *plan.safer))
        self._apart = Apart() if anchored else None
        if self._apart is not None:
            return self._apart.placed(buckets, place, framework, slots, before)
        return super().placed(buckets, place, framework, slots, before)

    def sums(self, placed: Sequence[LoadedBucket], framework: Framework) -> list[tuple[LoadedBucket, ...]]:
        if self._apart is not None:
            return self._apart.sums(placed, framework)
        return super().sums(placed, framework)


def _gradients(buckets: Sequence[CompiledBucket]) -> dict[str, Gradient]:
    return {each.name: each for bucket in buckets for each in bucket.gradients}
