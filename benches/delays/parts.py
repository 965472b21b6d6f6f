"""Gradients cut into parts and joined into buckets: uniform parts, and changes for a search over unequal ones. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.profile import Gradient

LEAST_BYTES = 1 << 16
"""Size below which a part is not cut: shorter parts cost more messages than they hide."""

Slice = tuple[Gradient, int, int]
"""Gradient, first element and end element."""


class Blocks(NamedTuple):
    """Slices that travel together, in the order in which forward needs them, and their places in the order of sending."""

    groups: tuple[tuple[Slice, ...], ...]
    places: tuple[int, ...]


def uniform(gradients: Sequence[Gradient], size_bytes: int) -> list[list[Slice]]:
    """Cut large gradients into equal parts of at most `size_bytes`, and join small neighbours up to it, in the order of need."""
    cut: list[list[Slice]] = []
    for each in sorted(gradients, key=lambda each: each.needed_s):
        count = max(1, math.ceil(each.elements * ITEM_BYTES[each.dtype] / size_bytes))
        ends = [each.elements * at // count for at in range(count + 1)]
        cut += [[(each, start, stop)] for start, stop in itertools.pairwise(ends)]
    return filled(cut, size_bytes)


def filled(groups: Sequence[Sequence[Slice]], size_bytes: int) -> list[list[Slice]]:
    """Join neighbours up to `size_bytes`. Parts of different gradients stay apart: layers would wait for one another's parts."""
    found: list[list[Slice]] = []
    for group in groups:
        if found and bytes_of([*found[-1], *group]) <= size_bytes and _joins(found[-1], group):
            found[-1] = [*found[-1], *group]
        else:
            found.append(list(group))
    return found


def _joins(one: Sequence[Slice], other: Sequence[Slice]) -> bool:
    """Return whether both are whole gradients of one type, or parts of one gradient."""
    both = [*one, *other]
    whole = all(stop - start == gradient.elements for gradient, start, stop in both)
    alike = len({gradient.dtype for gradient, _, _ in both}) == 1
    return alike and (whole or len({gradient.name for gradient, _, _ in both}) == 1)


def bytes_of(group: Iterable[Slice]) -> int:
    return sum((stop - start) * ITEM_BYTES[gradient.dtype] for gradient, start, stop in group)


def changed(blocks: Blocks) -> Iterator[Blocks]:
    """Variants with neighbours merged, a block cut in two, or a block sent one place earlier."""
    groups, places = blocks
    for at, (one, other) in enumerate(itertools.pairwise(groups)):
        if _joins(one, other):
            merged = tuple(_whole([*one, *other]))
            yield _renumbered(
                (*groups[:at], merged, *groups[at + 2 :]),
                (*places[:at], min(places[at : at + 2]), *places[at + 2 :]),
            )
    for at, group in enumerate(groups):
        for halves in _halves(group):
            again = (*places[: at + 1], places[at] + 0.5, *places[at + 1 :])
            yield _renumbered((*groups[:at], *halves, *groups[at + 1 :]), again)
    order = sorted(range(len(places)), key=places.__getitem__)
    for earlier, later in itertools.pairwise(order):
        swapped = list(places)
        swapped[earlier], swapped[later] = places[later], places[earlier]
        yield Blocks(groups, tuple(swapped))


def _halves(group: tuple[Slice, ...]) -> Iterator[tuple[tuple[Slice, ...], tuple[Slice, ...]]]:
    if len(group) > 1:
        half = len(group) // 2
        yield group[:half], group[half:]
        return
    gradient, start, stop = group[0]
    if (stop - start) * ITEM_BYTES[gradient.dtype] > 2 * LEAST_BYTES:
        middle = (start + stop) // 2
        yield ((gradient, start, middle),), ((gradient, middle, stop),)


def _whole(group: Sequence[Slice]) -> list[Slice]:
    found: list[Slice] = []
    for gradient, start, stop in group:
        if found and found[-1][0] is gradient and found[-1][2] == start:
            found[-1] = (gradient, found[-1][1], stop)
        else:
            found.append((gradient, start, stop))
    return found


def _renumbered(groups: tuple[tuple[Slice, ...], ...], places: Sequence[float]) -> Blocks:
    order = sorted(range(len(places)), key=places.__getitem__)
    return Blocks(groups, tuple(order.index(at) for at in range(len(places))))
