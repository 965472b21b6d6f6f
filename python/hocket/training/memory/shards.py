"""Ranges of parameters with owners that one rank updates, and their optimizer state (as in ZeRO); a pure part of `owners`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from hocket.training.memory.buckets import Launch, LoadedBucket


class Range(NamedTuple):
    """Elements of a flattened parameter that this rank updates; `alone`: no other rank updates them."""

    start: int
    stop: int
    alone: bool


@dataclass
class State:
    """Optimizer state of a parameter or of a part of it, by name: flat arrays for state with one item per element, in the element
    type, and scalars for other state, in a form that JSON can hold."""

    arrays: dict[str, Any] = field(default_factory=dict)
    scalars: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Shard:
    """Optimizer state of a range of a parameter's elements."""

    name: str
    start: int
    stop: int
    state: State


Held = Mapping[int, Sequence[tuple[int, int]]]
"""By number of a bucket, elements of it: start and stop of each piece."""


def ranges(
    buckets: Iterable[LoadedBucket], rank: int, held: Held | None = None
) -> dict[str, tuple[Range, ...]]:
    """Return the ranges that `rank` updates of each parameter with owners, ascending: its own, and those of all ranks.
    `held`: instead of what it owns."""
    found: dict[str, list[Range]] = {}
    divided: set[str] = set()
    for bucket in buckets:
        for launch in bucket.launches:
            if launch.values is not None:
                divided |= {name for name, start, stop in launch.compiled.ranges if start < stop}
            for name, own in _updated(launch, rank, held):
                found.setdefault(name, []).append(own)
    return {
        name: tuple(sorted(own))
        for bucket in buckets
        for name, own in ((each, found.get(each, [])) for each in bucket.names)
        if name in divided
    }


def agreed(told: Iterable[Mapping[str, tuple[list[str], dict[str, Any]]]]) -> dict[str, State]:
    """Return by parameter, from all ranks' descriptions of their shards, the names of arrays (without arrays) and the scalars.

    Scalars are alike on all ranks that have some of a parameter; those of the lowest rank count.

    >>> agreed([{}, {"w": (["average"], {"step": 3})}])["w"].scalars
    {'step': 3}
    """
    found: dict[str, State] = {}
    for each in told:
        for name, (arrays, scalars) in each.items():
            state = found.setdefault(name, State(scalars=scalars))
            state.arrays |= dict.fromkeys(arrays)
    return found


def within(launch: Launch, start: int, stop: int) -> Iterable[tuple[str, int, int]]:
    """Yield what elements `start` to `stop` of a bucket are of its parameters: names, first elements and ends."""
    at = 0
    for name, first, last in launch.compiled.ranges:
        begin, end = max(start, at), min(stop, at + last - first)
        if begin < end:
            yield name, begin - at + first, end - at + first
        at += last - first


def _updated(launch: Launch, rank: int, held: Held | None) -> Iterable[tuple[str, Range]]:
    values = launch.compiled.values
    ends = [0]
    for _, start, stop in launch.compiled.ranges:
        ends.append(ends[-1] + stop - start)
    for (name, start, _), (first, last) in zip(launch.compiled.ranges, pairwise(ends), strict=True):
        if values is None:
            owned = [(first, last)]
        elif held is None:
            owned = [(begin, end) for owner, begin, end in values.owned if owner == rank]
        else:
            owned = list(held.get(launch.number, ()))
        for begin, end in ((max(begin, first), min(end, last)) for begin, end in owned):
            if begin < end:
                yield name, Range(begin - first + start, end - first + start, values is not None)
