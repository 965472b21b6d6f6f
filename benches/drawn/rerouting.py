"""A search that shares only the simulator with the planner: any order, groups and owners for each bucket, changed at random.

It uses no racks, no rules and no closed form, but threshold accepting, like the planner's own search, from a few plain plans and
from given ones: any faster plan is one that the planner has missed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import msgspec

from benches.drawn import ways
from benches.drawn.clusters import Case
from benches.drawn.ways import Way
from hocket.artefacts.chunks import chunk_bytes
from hocket.artefacts.plan import Bucket, Part, Plan
from hocket.planning.buckets import backward_order, plan_of, sizes_of
from hocket.planning.links import link_graph

FIRST = 0.04
"""First threshold, as a fraction of the start's step time."""
CUT_ELEMENTS_MIN, CUT_ELEMENTS = 16_384, 64
"""Smallest part of a variable, and the unit of cuts."""
SIZES_BYTES = (1 << 20, 4 << 20, 1 << 40)
"""Bucket sizes of plain plans."""

Slice = tuple[int, int, int]
"""Index of a variable, its first element and end element."""


@dataclass(frozen=True)
class Load:
    """A bucket: parts of variables, and their way."""

    slices: tuple[Slice, ...]
    way: Way


State = tuple[Load, ...]
"""Buckets in order of priority."""


class Rerouting:
    def __init__(self, case: Case, step_s: Callable[[Plan], float], seed: int) -> None:
        """Prepare a search. `step_s`: the cost of a plan."""
        self._case, self._step_s = case, step_s
        self._draw = random.Random(seed)  # noqa: S311  # of moves
        self._workers = case.world - case.helpers
        self._gradients = backward_order(case.profile.gradients)
        self._chunk = chunk_bytes(link_graph(case.cluster, case.world).slowest_bit_per_s)

    def best(self, evaluations: int, given: Sequence[Plan]) -> tuple[Plan, float]:
        """Find the fastest plan within a number of evaluations, starting from `given` among others."""
        starts = [*self._plain(), *filter(None, map(self._read, given))]
        scored = sorted(((self._score(state), at) for at, state in enumerate(starts)))
        chosen = [starts[at] for _, at in scored[:3]]
        left = max(0, evaluations - len(starts))
        found = [self._annealed(state, left // len(chosen)) for state in chosen]
        step_s, state = min(found, key=lambda each: each[0])
        return self.plan(state), step_s

    def plan(self, state: State) -> Plan:
        buckets = []
        for priority, load in enumerate(state):
            parts = tuple(
                Part(variable=self._gradients[at].name, start=start, stop=stop)
                for at, start, stop in load.slices
            )
            buckets.append(
                Bucket(
                    parts=parts,
                    elements=sum(stop - start for _, start, stop in load.slices),
                    dtype="f32",
                    route=load.way.route,
                    order=load.way.members(),
                    priority=priority,
                    chunk_bytes=self._chunk,
                )
            )
        workers = self._workers
        helped = any(max(bucket.order) >= workers for bucket in buckets)
        made = plan_of(buckets, self._case.world if helped else workers, label="rerouted")
        return msgspec.structs.replace(made, workers=tuple(range(workers)))

    def _score(self, state: State) -> float:
        return self._step_s(self.plan(state))

    def _annealed(self, state: State, evaluations: int) -> tuple[float, State]:
        current_s = self._score(state)
        best = (current_s, state)
        first_s = FIRST * current_s
        for at in range(evaluations):
            threshold_s = first_s * (1 - at / evaluations)
            moved = self._moved(state)
            if moved == state:
                continue
            step_s = self._score(moved)
            if step_s <= current_s + threshold_s:
                state, current_s = moved, step_s
                best = min(best, (step_s, moved), key=lambda each: each[0])
        return best

    def _plain(self) -> Iterator[State]:
        workers, world = self._workers, self._case.world
        order = tuple(range(workers))
        racks: dict[str, list[int]] = {}
        for rank in order:
            racks.setdefault(self._case.cluster.hosts[rank].rack, []).append(rank)
        blocks = list(racks.values())
        by_racks = tuple(chain.from_iterable(blocks))
        sizes = tuple(map(len, blocks))
        single = (1,) * workers
        helpers = tuple(int(rank >= workers) for rank in range(world))
        candidates = [
            Way(by_racks, single),
            Way(by_racks, sizes),
            Way(order, single, (1,) * world),
            *([Way(order, single, helpers)] if any(helpers) else []),
            *(Way((*by_racks[at:], *by_racks[:at]), (workers,)) for at in range(0, workers, 2)),
        ]
        for way in candidates:
            for size_bytes in SIZES_BYTES:
                yield tuple(Load(each, way) for each in self._bundled(size_bytes))

    def _bundled(self, size_bytes: int) -> Iterator[tuple[Slice, ...]]:
        bundle: list[Slice] = []
        for at, gradient in enumerate(self._gradients):
            bundle.append((at, 0, gradient.elements))
            if 4 * sum(stop for _, _, stop in bundle) >= size_bytes:
                yield tuple(bundle)
                bundle = []
        if bundle:
            yield tuple(bundle)

    def _read(self, plan: Plan) -> State | None:
        """Convert a plan to a state; None if a bucket's route has no equivalent here."""
        numbers = {gradient.name: at for at, gradient in enumerate(self._gradients)}
        found = []
        for bucket in sorted(plan.buckets, key=lambda each: each.priority):
            way = ways.of(bucket.route, bucket.order, self._workers, self._case.world)
            if way is None:
                return None
            sizes = [size for _, size in sizes_of(bucket)]
            slices = tuple(
                (numbers[part.variable], part.start, part.start + size)
                for part, size in zip(bucket.parts, sizes, strict=True)
            )
            found.append(Load(slices, way))
        return tuple(found)

    def _moved(self, state: State) -> State:
        draw, at = self._draw, self._draw.randrange(len(state))
        load = state[at]
        match draw.randrange(10):
            case 0 | 1 | 2:
                return _with(state, at, replace(load, way=self._changed(load.way)))
            case 3 | 4 | 5:
                way = self._changed(load.way)
                return tuple(replace(each, way=way) if each.way == load.way else each for each in state)
            case 6:
                return _with(state, at, replace(load, way=draw.choice(state).way))
            case 7:
                return self._divided(state, at)
            case 8:
                return _merged(state, at)
            case _:
                to = draw.randrange(len(state))
                rest = (*state[:at], *state[at + 1 :])
                return (*rest[:to], load, *rest[to:])

    def _changed(self, way: Way) -> Way:
        if self._draw.random() < 0.05:
            return ways.drawn(self._draw, self._workers, self._case.world)
        return ways.changed(self._draw, way, self._case.world)

    def _divided(self, state: State, at: int) -> State:
        """Divide a bucket in two, through a variable if necessary; the second may get another way."""
        load, draw = state[at], self._draw
        if len(load.slices) > 1:
            cut = draw.randint(1, len(load.slices) - 1)
            halves = load.slices[:cut], load.slices[cut:]
        else:
            variable, start, stop = load.slices[0]
            cut = start + (stop - start) * draw.randint(1, 9) // 10 // CUT_ELEMENTS * CUT_ELEMENTS
            if cut - start < CUT_ELEMENTS_MIN or stop - cut < CUT_ELEMENTS_MIN:
                return state
            halves = ((variable, start, cut),), ((variable, cut, stop),)
        way = self._changed(load.way) if draw.random() < 0.7 else load.way
        return (*state[:at], Load(halves[0], load.way), Load(halves[1], way), *state[at + 1 :])


def _with(state: State, at: int, load: Load) -> State:
    return (*state[:at], load, *state[at + 1 :])


def _merged(state: State, at: int) -> State:
    """Merge a bucket and the next one, on the first one's way; only whole variables, whose memory is contiguous."""
    if at + 1 == len(state):
        return state
    one, other = state[at], state[at + 1]
    slices = sorted({*one.slices, *other.slices})
    joined: list[Slice] = []
    for variable, start, stop in slices:
        if joined and joined[-1][0] == variable and joined[-1][2] == start:
            joined[-1] = (variable, joined[-1][1], stop)
        else:
            joined.append((variable, start, stop))
    cut = {variable for variable, _, _ in joined}
    return (*state[:at], Load(tuple(joined), one.way), *state[at + 2 :]) if len(cut) == len(joined) else state
