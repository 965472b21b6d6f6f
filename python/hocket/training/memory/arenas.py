"""Layout of gradients whose parts travel in different buckets: which gradients share a piece of memory, and in which order.

A gradient lies in one piece, so buckets that have parts of the same gradient share memory: an arena. A bucket whose elements are
not next to one another there is packed by its program.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Part, Plan

Run = tuple[int, int]
"""Range of an arena's elements: start, stop."""


class Arena(msgspec.Struct, frozen=True):
    """Gradients in the order in which they lie, and the numbers of the buckets that have parts of them."""

    gradients: tuple[Gradient, ...]
    numbers: tuple[int, ...]

    def runs(self, parts: Sequence[Part]) -> tuple[Run, ...]:
        """Return the runs of the arena that these parts fill, in its order; neighbouring parts are one run.

        >>> arena = Arena((Gradient("a", (4,), "f32"), Gradient("b", (6,), "f32")), (0,))
        >>> arena.runs([Part(variable="b", start=0, stop=2), Part(variable="a", start=0, stop=4)])
        ((0, 6),)
        """
        starts = self._starts()
        found: list[Run] = []
        for start, stop in sorted(
            (starts[part.variable] + part.start, starts[part.variable] + _stop(part)) for part in parts
        ):
            if found and found[-1][1] == start:
                found[-1] = (found[-1][0], stop)
            elif start < stop:
                found.append((start, stop))
        return tuple(found)

    def sorted(self, parts: Sequence[Part]) -> tuple[Part, ...]:
        """Return the parts in the order in which they lie."""
        starts = self._starts()
        return tuple(sorted(parts, key=lambda part: (starts[part.variable] + part.start, part.stop)))

    def _starts(self) -> dict[str, int]:
        sizes = itertools.accumulate((each.elements for each in self.gradients), initial=0)
        return {each.name: start for each, start in zip(self.gradients, sizes, strict=False)}


def arenas_of(buckets: Sequence[Sequence[Part]], gradients: Mapping[str, Gradient]) -> list[Arena]:
    """Return the arenas of buckets' parts, in the order of their first buckets; a pure function, so that all ranks have the same.

    >>> gradients = {name: Gradient(name, (4,), "f32") for name in "abc"}
    >>> parts = [[Part(variable="a"), Part(variable="b", stop=1)], [Part(variable="b", start=1)], [Part(variable="c")]]
    >>> [arena.numbers for arena in arenas_of(parts, gradients)]
    [(0, 1), (2,)]
    """
    arena_of: dict[str, int] = {}
    members: list[list[int]] = []
    for number, parts in enumerate(buckets):
        shared = sorted({arena_of[part.variable] for part in parts if part.variable in arena_of})
        into = shared[0] if shared else len(members)
        if not shared:
            members.append([])
        for other in shared[1:]:
            members[into] += members[other]
            members[other] = []
        members[into].append(number)
        moved = members[into] if shared[1:] else [number]
        arena_of |= {part.variable: into for each in moved for part in buckets[each]}
    return [_arena(sorted(numbers), buckets, gradients) for numbers in members if numbers]


def arranged(plan: Plan, gradients: Mapping[str, Gradient]) -> Plan:
    """Return the plan with each bucket's parts in the order in which they lie, and with their ends."""
    ended = [_ended(bucket.parts, gradients) for bucket in plan.buckets]
    buckets = list(plan.buckets)
    for arena in arenas_of(ended, gradients):
        for number in arena.numbers:
            parts = arena.sorted(ended[number])
            # Most plans are arranged already.
            if parts != buckets[number].parts:
                buckets[number] = msgspec.structs.replace(buckets[number], parts=parts)
    return msgspec.structs.replace(plan, buckets=tuple(buckets))


def _arena(
    numbers: Sequence[int], buckets: Sequence[Sequence[Part]], gradients: Mapping[str, Gradient]
) -> Arena:
    """Return an arena in the order of the first buckets, of the last ones, or of buckets that continue one another's gradients: the
    order that leaves the fewest buckets to be packed.

    With several buckets the order depends on which parts they have, not on the order of their parts, which follows from the arena.
    """

    def side(part: Part) -> tuple[int, str]:
        """Sort key: parts that began in an earlier bucket come first, parts that go on in a later one last."""
        whole = part.start == 0 and part.stop in (None, gradients[part.variable].elements)
        return (1 if whole else 0 if part.start else 2), part.variable

    def arena_in(parts: Iterable[Part]) -> Arena:
        names = dict.fromkeys(part.variable for part in parts)
        return Arena(tuple(gradients[name] for name in names), tuple(numbers))

    if len(numbers) == 1:
        return arena_in(buckets[numbers[0]])
    tried = []
    for order in (numbers, numbers[::-1], _following(numbers, buckets)):
        arena = arena_in(part for number in order for part in sorted(buckets[number], key=side))
        packed = sum(len(arena.runs(_ended(buckets[number], gradients))) > 1 for number in numbers)
        tried.append((packed, arena))
    return min(tried, key=lambda each: each[0])[1]


def _following(numbers: Sequence[int], buckets: Sequence[Sequence[Part]]) -> list[int]:
    """Return an order with each bucket before one that continues its gradient, as far as there is such an order."""
    goes_on = {
        (part.variable, part.start): at
        for at in numbers
        for part in buckets[at]
        if part.start and part.start != part.stop
    }
    next_of: dict[int, int | None] = {}
    for at in numbers:
        others = {goes_on.get((part.variable, part.stop or 0), at) for part in buckets[at]} - {at}
        next_of[at] = min(others, default=None)
    first = [at for at in numbers if at not in next_of.values()]
    found: list[int] = []
    for begin in (*first, *numbers):
        own: int | None = begin
        while own is not None and own not in found:
            found.append(own)
            own = next_of[own]
    return found


def _ended(parts: Sequence[Part], gradients: Mapping[str, Gradient]) -> list[Part]:
    return [
        part
        if part.stop is not None
        else msgspec.structs.replace(part, stop=gradients[part.variable].elements)
        for part in parts
    ]


def _stop(part: Part) -> int:
    if part.stop is None:
        raise ValueError(f"a part of {part.variable} without an end")
    return part.stop
