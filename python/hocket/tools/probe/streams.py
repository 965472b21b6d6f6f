"""Number of TCP connections that fill each path: clouds and long, lossy paths give a single one less than the path carries.

All pairs of a round are measured with four connections each, and those that gain also with eight and with two. Two
rounds come first; if none of their pairs gains, no other is measured: most networks need one. The first number is four, since two
may share a lane of a bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from hocket.measure.rounds import tournament
from hocket.measure.topology import Matrix, Racks
from hocket.tools.probe.steps import Flow, Steps

FIRST = 4
FURTHER = (8, 2)

GAIN_MIN = 1.25
"""Least ratio of the best rate to that of one connection: a smaller one is noise, or a neighbour's loss."""

ENOUGH = 0.9
"""Fraction of the best rate that suffices: the fewest connections that reach it are taken."""


def find(steps: Steps, rates: Matrix, racks: Racks, tell: Callable[[str], None]) -> dict[Flow, int]:
    """Find the number of connections for both directions of each pair that gains from several; `steps` uses them from then on.

    `rates`: rates with one connection each, bit/s, measured in the rounds of a tournament.
    """
    found: dict[Flow, int] = {}
    first, rest = _order(tournament(len(rates)), racks)
    for rounds in (first, rest):
        for pairs in rounds:
            found |= _of_round(steps, pairs, rates, tell)
        if not found:
            break
    steps.streams = found
    return found


def choose(rates: Mapping[int, float]) -> int:
    """Choose the number of connections, given rates by number of connections.

    >>> choose({1: 10.0, 2: 19.0, 4: 20.0})
    2
    >>> choose({1: 10.0, 2: 11.0})
    1
    """
    best = max(rates.values())
    if best < GAIN_MIN * rates[1]:
        return 1
    return min(count for count, rate in rates.items() if rate >= ENOUGH * best)


def _of_round(
    steps: Steps, pairs: Sequence[Flow], rates: Matrix, tell: Callable[[str], None]
) -> dict[Flow, int]:
    seen = {(a, b): {1: rates[a][b]} for a, b in pairs}

    def measure(flows: Sequence[Flow], count: int) -> None:
        tell(f"{count} connections a pair")
        steps.streams = dict.fromkeys(flows, count)
        now = steps.rates(pairs)
        for flow in flows:
            seen[flow][count] = max(now[flow], seen[flow].get(count, 0.0))

    measure(pairs, FIRST)
    gaining = [flow for flow in pairs if choose(seen[flow]) > 1]
    for count in (*FURTHER, 1) if gaining else ():
        measure(gaining, count)
    chosen = {flow: choose(seen[flow]) for flow in gaining}
    return {way: count for (a, b), count in chosen.items() if count > 1 for way in ((a, b), (b, a))}


def _order(
    rounds: Sequence[Sequence[Flow]], racks: Racks
) -> tuple[list[Sequence[Flow]], list[Sequence[Flow]]]:
    """The rounds with the most pairs within racks and the most between them, and the others."""
    place = {host: index for index, rack in enumerate(racks) for host in rack}

    def crossing(index: int) -> int:
        return sum(place[a] != place[b] for a, b in rounds[index])

    order = sorted(range(len(rounds)), key=crossing)
    ends = set(order[:1] + order[-1:])
    return [rounds[at] for at in sorted(ends)], [rounds[at] for at in range(len(rounds)) if at not in ends]
