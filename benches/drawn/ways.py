"""Ways of a bucket in the search of `rerouting`: an order, groups of it, and the ranks that reduce for the groups.

The members of a group pass their sums along a chain to the first member. The first members reduce in a ring, or owners reduce for
them, including ranks that do not train. Groups of one and a ring are a ring; groups of one and owners are an exchange with owners.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import chain

from hocket.artefacts.plan import AllReduce, Direct, Owned, Owner, Route, TwoLevel

SHARE_MAX = 12


@dataclass(frozen=True)
class Way:
    """`order`: ranks that train. `sizes`: sizes of groups. `shares`: share of each rank as an owner; empty for a ring."""

    order: tuple[int, ...]
    sizes: tuple[int, ...]
    shares: tuple[int, ...] = ()

    @property
    def route(self) -> Route:
        if self.shares:
            return Owned(
                owners=tuple(
                    Owner(rank=rank, share=share) for rank, share in enumerate(self.shares) if share
                ),
                via=TwoLevel(stations=self.sizes) if max(self.sizes) > 1 else Direct(),
            )
        if max(self.sizes) == 1:
            return AllReduce(algorithm="ring")
        return AllReduce(algorithm="two_level", sizes=self.sizes)

    def members(self) -> tuple[int, ...]:
        """Order of a bucket: owners that do not train come last."""
        return (*self.order, *(at for at, share in enumerate(self.shares) if share and at not in self.order))


def of(route: Route, order: tuple[int, ...], workers: int, world: int) -> Way | None:
    """Convert a route; None for a route of another kind."""
    own = tuple(rank for rank in order if rank < workers)
    if isinstance(route, Owned):
        shares = {owner.rank: owner.share for owner in route.owners}
        sizes = route.via.stations if isinstance(route.via, TwoLevel) else (1,) * workers
        return Way(own, sizes, tuple(shares.get(rank, 0) for rank in range(world)))
    if isinstance(route, AllReduce) and route.algorithm in ("ring", "two_level"):
        return Way(own, route.sizes or (1,) * workers)
    return None


def drawn(draw: random.Random, workers: int, world: int) -> Way:
    order = tuple(draw.sample(range(workers), workers))
    sizes: list[int] = []
    while sum(sizes) < workers:
        sizes.append(min(draw.choice((1, 1, 2, 3, workers)), workers - sum(sizes)))
    shares = (0,) * world
    while not any(shares):
        shares = tuple(draw.choice((0, 0, 1, 2)) for _ in range(world))
    return Way(order, tuple(sizes), draw.choice(((), shares)))


def changed(draw: random.Random, way: Way, world: int) -> Way:
    match draw.randrange(7):
        case 0 | 1 | 2 as how:
            return replace(way, order=(_swapped, _moved, _reversed)[how](draw, way.order))
        case 3:
            return replace(way, sizes=_regrouped(draw, way.sizes))
        case 4:
            return _moved_between_groups(draw, way)
        case 5:
            return replace(way, shares=_shared(draw, way.shares, world))
        case _:
            owner = draw.randrange(world)
            alone = tuple(int(rank == owner) for rank in range(world))
            return replace(way, shares=draw.choice(((), alone, tuple([1] * world))))


def _swapped(draw: random.Random, order: tuple[int, ...]) -> tuple[int, ...]:
    one, other = draw.randrange(len(order)), draw.randrange(len(order))
    found = list(order)
    found[one], found[other] = found[other], found[one]
    return tuple(found)


def _moved(draw: random.Random, order: tuple[int, ...]) -> tuple[int, ...]:
    found = list(order)
    rank = found.pop(draw.randrange(len(found)))
    found.insert(draw.randint(0, len(found)), rank)
    return tuple(found)


def _reversed(draw: random.Random, order: tuple[int, ...]) -> tuple[int, ...]:
    first, last = sorted((draw.randint(0, len(order)), draw.randint(0, len(order))))
    return (*order[:first], *reversed(order[first:last]), *order[last:])


def _regrouped(draw: random.Random, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Divide a group, or merge two."""
    at = draw.randrange(len(sizes))
    if sizes[at] > 1 and draw.random() < 0.5:
        first = draw.randint(1, sizes[at] - 1)
        return (*sizes[:at], first, sizes[at] - first, *sizes[at + 1 :])
    if at + 1 < len(sizes):
        return (*sizes[:at], sizes[at] + sizes[at + 1], *sizes[at + 2 :])
    return sizes


def _moved_between_groups(draw: random.Random, way: Way) -> Way:
    """Move the last member of a group to the end of another, or to a new group."""
    groups, first = [], 0
    for size in way.sizes:
        groups.append(list(way.order[first : first + size]))
        first += size
    rank = groups[draw.randrange(len(groups))].pop()
    target = draw.randint(0, len(groups))
    if target == len(groups):
        groups.append([rank])
    else:
        groups[target].insert(draw.randint(0, len(groups[target])), rank)
    left = [group for group in groups if group]
    return replace(way, order=tuple(chain.from_iterable(left)), sizes=tuple(map(len, left)))


def _shared(draw: random.Random, shares: tuple[int, ...], world: int) -> tuple[int, ...]:
    """Change one rank's share."""
    found = list(shares or [1] * world)
    at = draw.randrange(world)
    found[at] = draw.choice(
        (0, max(0, found[at] - 1), min(SHARE_MAX, found[at] + 1), min(SHARE_MAX, 2 * found[at]))
    )
    return tuple(found) if any(found) else shares
