"""Parts of buckets that owners update, in a job whose ranks may be lost: what each is, and programs by which they change hands."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from hocket import _native
from hocket.artefacts.plan import Plan
from hocket.planning.copies import Copy, copies_program
from hocket.planning.seconds import Portion, portions
from hocket.training.elastic.moving import Move, Ranks, Table
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.device import Device, staged
from hocket.training.memory.framework import Division
from hocket.training.memory.shards import Held, Shard, within


class Parts:
    """Parts of all buckets with owners, by number, from when all ranks meet. `portions`: who may have each; `pieces`: what it is of
    parameters."""

    def __init__(self, plan: Plan, buckets: Sequence[LoadedBucket]) -> None:
        self.portions = portions(plan)
        launches = {launch.number: launch for bucket in buckets for launch in bucket.launches}
        self.pieces = [list(within(launches[each.bucket], each.start, each.stop)) for each in self.portions]

    def wanted(self, rank: int, alive: Collection[int]) -> set[int]:
        """Return the parts that a rank is to have among these."""
        return {number for number, each in enumerate(self.portions) if rank in each.holders(alive)}

    def ranges(self, numbers: Collection[int]) -> Held:
        """Return what these parts are of their buckets."""
        found: dict[int, list[tuple[int, int]]] = {}
        for number in sorted(numbers):
            portion = self.portions[number]
            found.setdefault(portion.bucket, []).append((portion.start, portion.stop))
        return found

    def of(self, number: int, shards: Iterable[Shard]) -> list[Shard]:
        """Return the shards that are this part's."""
        pieces = set(self.pieces[number])
        return [each for each in shards if (each.name, each.start, each.stop) in pieces]


class Programs:
    """Programs beside those of buckets in an epoch of members.

    Attributes:
        members: ranks that are left, by their ranks when all met.
        ranks: the same, as this one sees them.
        counter: table of exchanges that ranks have made.
        norms: table of norms.
    """

    def __init__(
        self,
        parts: Parts,
        members: Sequence[int],
        met: int,
        *,
        engine: _native.Engine,
        rank: int,
        wait: Callable[[Iterable[int]], None],
        buckets: Sequence[tuple[LoadedBucket, LoadedBucket]],
        device: Device | None,
    ) -> None:
        """Load them, at the same position on all ranks. `met`: number of ranks that had met, of which this one is `rank`;
        `buckets`: with their sums."""
        self.members, self._parts, self._device = tuple(members), parts, device
        world, count = len(self.members), len(parts.portions)
        self.ranks = Ranks(engine, self.members.index(rank), world, wait)
        self._copies = [each for own, sums in buckets for each in self._loaded(own, sums)]
        self.counter = Table(self.ranks, 1, "max", "exchanges of owners")
        self._inventory = Table(self.ranks, world * count + 1, "max", "parts of owners")
        self._sizes = Table(self.ranks, world * count, "max", "sizes of parts of owners")
        # As many as there were at first: the same numbers give the same bits then, whoever adds them up.
        self.norms = Table(self.ranks, met, "sum", "norms")

    def _loaded(self, bucket: LoadedBucket, sums: LoadedBucket) -> Iterable[int]:
        """Load the programs that bring means to seconds, one for each launch."""
        names = [each.name for each in bucket.gradients]
        ends = list(itertools.accumulate(each.elements for each in bucket.gradients))
        starts = dict(zip(names, [0, *ends], strict=False))
        for launch in bucket.launches:
            copies = []
            for portion, pieces in zip(self._parts.portions, self._parts.pieces, strict=True):
                holders = portion.holders(self.members)
                if portion.bucket == launch.number and len(holders) > 1:
                    source, target = map(self.members.index, holders)
                    for name, start, stop in pieces:
                        at = starts[name] + start
                        copies.append(Copy(source, at, target, at, stop - start))
            if not copies:
                continue
            program = copies_program(
                f"bucket.{launch.number}.seconds",
                copies,
                lengths=[ends[-1]] * len(self.members),
                dtype=bucket.dtype,
            )
            bound = {0: (sums.memory, 0)}
            own, numbered = staged(program, bound, self._device)
            yield self.ranks.engine.load(
                own,
                numbered(bound),
                priority=launch.compiled.priority,
                label=f"means of bucket {launch.number} for second owners",
            )

    def give_means(self) -> None:
        """Give seconds the means of a step whose sums are here, and wait for this rank's."""
        for program in self._copies:
            self.ranks.engine.launch(program)
        self.ranks.wait(self._copies)

    def owner(self, portion: Portion) -> int:
        """Return the owner's rank among those that are left."""
        return self.members.index(portion.holders(self.members)[0])

    def inventory(self, held: Collection[int], *, lacks: bool) -> tuple[npt.NDArray[np.bool_], bool]:
        """Tell which parts this rank has, and whether it lacks values; return who has which, by rank and number, and whether some
        rank lacks values."""
        count = len(self._parts.portions)
        mine = np.zeros(len(self.members) * count + 1)
        mine[[self.ranks.rank * count + each for each in held]] = 1
        mine[-1] = lacks
        *flat, some_lack = self._inventory.told(mine)
        return np.array(flat, bool).reshape(len(self.members), count), bool(some_lack)

    def moved(self, moves: Sequence[Move], division: Division) -> dict[int, list[Shard]]:
        """Move parts; return those that have come here. All ranks call it."""
        if not moves:
            return {}
        rank, count = self.ranks.rank, len(self._parts.portions)
        gives = {number for source, _, number in moves if source == rank}
        shards = division.shards() if gives else ()
        given = {number: division.packed(self._parts.of(number, shards)) for number in gives}
        mine = np.zeros(len(self.members) * count)
        for number, data in given.items():
            mine[rank * count + number] = len(data)
        sizes = self._sizes.told(mine)
        came = self.ranks.sent(moves, given, [int(sizes[source * count + at]) for source, _, at in moves])
        numbers = [number for _, target, number in moves if target == rank]
        return {number: division.unpacked(data) for number, data in zip(numbers, came, strict=True)}
