"""Links shared by several pairs of hosts, for the search of orders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hocket.artefacts.network import Link

BITS = 8


@dataclass(frozen=True)
class SharedLinks:
    """Rates of links, and for each ordered pair of hosts (or ranks), row by row, the links on its path.

    `rates`: bytes/s of a link, and of each flow's alternative path. `crossed[starts[a · n + b]:starts[a · n + b + 1]]` are the
    links from `a` to `b`. `groups`: hosts behind one switch; a single group if all are, or if unknown.
    """

    rates: tuple[tuple[float, float], ...]
    starts: NDArray[np.uint32]
    crossed: NDArray[np.uint32]
    groups: tuple[tuple[int, ...], ...]


def shared_links(
    links: Sequence[Link],
    paths: Mapping[tuple[int, int], Sequence[int]],
    count: int,
    groups: Sequence[Sequence[int]] = (),
) -> SharedLinks:
    """Find the links that pairs of `count` hosts or ranks share. `paths`: of each ordered pair; links of one pair are left out.

    >>> found = shared_links([Link("a out", 8e6), Link("b in", 8e6)], {(0, 1): (0, 1), (1, 0): (), (0, 2): (0,)}, 3)
    >>> found.rates, found.crossed.tolist()
    (((1000000.0, 0.0),), [0, 0])
    """
    pairs = Counter(link for (a, b), path in paths.items() if a != b for link in path)
    places = {link: at for at, link in enumerate(sorted(link for link, users in pairs.items() if users > 1))}
    starts, crossed = [0], []
    for a in range(count):
        for b in range(count):
            if a != b:
                crossed += [places[link] for link in paths.get((a, b), ()) if link in places]
            starts.append(len(crossed))
    return SharedLinks(
        rates=tuple((links[link].bit_per_s / BITS, links[link].beside_bit_per_s / BITS) for link in places),
        starts=np.array(starts, dtype=np.uint32),
        crossed=np.array(crossed, dtype=np.uint32),
        groups=tuple(map(tuple, groups)) or (tuple(range(count)),),
    )
