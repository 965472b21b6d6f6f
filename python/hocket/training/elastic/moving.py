"""Optimizer state of parts on its way between owners: who has what, how large it is, and its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from hocket import _native
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import AllReduce
from hocket.errors import PeerError
from hocket.job.rendezvous import Job
from hocket.planning.compile import all_reduce_program
from hocket.planning.copies import Copy, copies_program
from hocket.training.memory.framework import Division
from hocket.training.memory.shards import Range, Shard

Move = tuple[int, int, int]
"""Rank that gives, rank that gets, and the number of what the first one has."""

Sources = Mapping[tuple[int, int], tuple[str, int, int, int]]
"""By rank and place among its shards: name of the parameter, first element, end, and bytes of the state."""


class Ranks:
    """Ranks of an epoch of members, as one of them sees them. `wait`: waits for programs of the engine."""

    def __init__(
        self, engine: _native.Engine, rank: int, world: int, wait: Callable[[Iterable[int]], None]
    ) -> None:
        self.engine, self.rank, self.world, self.wait = engine, rank, world, wait

    def sent(self, moves: Sequence[Move], given: Mapping[int, bytes], sizes: Sequence[int]) -> list[bytes]:
        """Send bytes, `given` by number, whose `sizes` all ranks know; return those that have come here, in the order of `moves`.
        All ranks call it."""
        if not moves:
            return []
        lengths, copies = [0] * self.world, []
        places: dict[tuple[int, int], int] = {}
        for (source, target, number), size in zip(moves, sizes, strict=True):
            if (source, number) not in places:
                places[source, number] = lengths[source]
                lengths[source] += size
            copies.append(Copy(source, places[source, number], target, lengths[target], size))
            lengths[target] += size
        lengths = [max(1, each) for each in lengths]
        memory = self.engine.allocate(lengths[self.rank])
        window = memoryview(memory)
        for (source, number), start in places.items():
            if source == self.rank:
                window[start : start + len(given[number])] = given[number]
        program = copies_program("state", copies, lengths=lengths, dtype="u8")
        loaded = self.engine.load(program, {0: (memory, 0)}, priority=0, label="state of owners")
        self.engine.launch(loaded)
        self.wait([loaded])
        self.engine.unload(loaded)
        return [
            bytes(window[each.at : each.at + each.elements]) for each in copies if each.target == self.rank
        ]


class Table:
    """Numbers that all ranks reduce."""

    def __init__(self, ranks: Ranks, elements: int, op: str, label: str) -> None:
        """Load the program, at the same position on all ranks."""
        program = all_reduce_program(
            world=ranks.world,
            elements=elements,
            dtype="f64",
            op=op,
            scale=1.0,
            route=AllReduce(algorithm="halving_doubling"),
        )
        memory = ranks.engine.allocate(elements * ITEM_BYTES["f64"])
        self._ranks, self._values = ranks, np.frombuffer(memoryview(memory), np.float64)
        self._program = ranks.engine.load(program, {0: (memory, 0)}, priority=0, label=label)

    def told(self, mine: Any) -> list[float]:
        """Tell this rank's numbers, and return what all have told together."""
        self._values[:] = mine
        self._ranks.engine.launch(self._program)
        self._ranks.wait([self._program])
        return [float(each) for each in self._values]


def share(
    mine: Sequence[Shard],
    steps: Sequence[Mapping[str, Sequence[Range]]],
    job: Job,
    ranks: Ranks,
    division: Division,
) -> None:
    """Give ranks that have met the state of what each steps, from those that had it before. All of them call it.

    Args:
        mine: state that this rank had.
        steps: by rank, what it steps of parameters that are divided; each steps all of the others.
        job: that of all that have met.
        ranks: the same.
        division: where state is put.

    RendezvousError: some do not come. PeerError: nobody has some of it.
    """
    given = dict(enumerate(division.packed([each]) for each in mine))
    told = [[each.name, each.start, each.stop, len(given[at])] for at, each in enumerate(mine)]
    everyones = job.store.gather("owners/shards", job.rank, job.world, told, job.settings.start_timeout_s)
    sources: Sources = {
        (rank, at): (name, start, stop, size)
        for rank, own in enumerate(everyones)
        for at, (name, start, stop, size) in enumerate(own)
    }
    moves = [
        (source, rank, at)
        for rank, own in enumerate(steps)
        for source, at in _covering(_wanted(own, sources), sources, rank, job.hosts)
    ]
    others = [move for move in moves if move[0] != move[1]]
    came = ranks.sent(others, given, [sources[source, at][3] for source, _, at in others])
    kept = [mine[at] for source, rank, at in moves if source == rank == job.rank]
    division.put([*kept, *(each for data in came for each in division.unpacked(data))])


def _wanted(steps: Mapping[str, Sequence[Range]], sources: Sources) -> dict[str, list[tuple[int, int]]]:
    found = {name: [(each.start, each.stop) for each in own] for name, own in steps.items()}
    for name, start, stop, _ in sources.values():
        found.setdefault(name, [(start, stop)])
    return found


def _covering(
    steps: Mapping[str, Sequence[tuple[int, int]]],
    sources: Sources,
    rank: int,
    hosts: Sequence[str],
) -> list[tuple[int, int]]:
    """Return the shards, by rank and place, that together have the state of all that a rank steps: its own, and then those of near
    ranks. PeerError: some of a parameter's state is nobody's."""
    found: dict[tuple[int, int], None] = {}
    by_name: dict[str, list[tuple[int, int, tuple[int, int]]]] = {}
    for key, (name, start, stop, _) in sources.items():
        by_name.setdefault(name, []).append((start, stop, key))

    def preference(key: tuple[int, int]) -> tuple[bool, bool, int]:
        return key[0] != rank, hosts[key[0]] != hosts[rank], (key[0] - rank) % len(hosts)

    for name, own in steps.items():
        known = by_name.get(name, [])
        for start, stop in own if known else ():
            at = start
            while at < stop:
                here = [each for each in known if each[0] <= at < each[1]]
                if not here:
                    raise PeerError(
                        f"ranks that have met lack the optimizer's state of elements {at} to {stop} of `{name}`: those that had it "
                        "are lost\nhint: go on from a checkpoint"
                    )
                _, at, best = min(here, key=lambda each: preference(each[2]))
                found[best] = None
    return list(found)
