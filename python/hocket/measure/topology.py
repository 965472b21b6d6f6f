"""Inference of racks, trunks and links from measured rates, without any I/O.

Gaps reveal racks: sort the rates of all pairs of hosts; if one is much faster than the next, the pairs above the gap count as
neighbours. If neighbourhood then splits the hosts into groups of mutual neighbours, these groups are the racks. Without such a gap
in rates, latencies are tried; otherwise there is one rack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from hocket.artefacts.cluster import Directions, directions

Matrix = Sequence[Sequence[float]]
"""Row: source host; column: destination host. Diagonals are ignored."""

Racks = Sequence[tuple[int, ...]]
"""Hosts of each rack."""

Flows = Mapping[tuple[int, int], float]
"""Rates of transfers of one round, by (source, destination), in bit/s."""

RATE_GAP = 1.6
"""Ratio of two successive rates from which there is a gap: repeated measurements differ by less."""

LATENCY_GAP = 2.0
"""Ratio of two successive latencies from which there is a gap, if the difference is also `LATENCY_GAP_S`."""

LATENCY_GAP_S = 30e-6
"""Least difference of latencies at a gap: a switch adds microseconds; scheduling noise of the measuring process is about ten."""

SHARED_BELOW = 0.8
"""Fraction of the sum of flows' rates alone below which simultaneous flows show that they share a trunk."""


LOPSIDED = 0.9
"""Ratio of a link's two directions from which they count as one rate, the slower: repeated measurements differ as much."""

FILLED_BY_ONE = 1.15
"""Ratio to one flow alone below which simultaneous flows do not show that the trunk has more."""


def find_racks(bandwidth_bit_per_s: Matrix, latency_s: Matrix) -> tuple[tuple[int, ...], ...]:
    """Hosts of each rack, ascending; racks by their first host.

    >>> slow_trunk = [[0, 10, 95], [10, 0, 10], [95, 10, 0]]
    >>> find_racks(slow_trunk, [[0.0] * 3] * 3)
    ((0, 2), (1,))
    """
    count = len(bandwidth_bit_per_s)
    pairs = [(i, j) for i in range(count) for j in range(i)]
    slowness = {(i, j): 1 / min(bandwidth_bit_per_s[i][j], bandwidth_bit_per_s[j][i]) for i, j in pairs}
    delay = {(i, j): max(latency_s[i][j], latency_s[j][i]) for i, j in pairs}
    for distances, ratio, difference in ((slowness, RATE_GAP, 0.0), (delay, LATENCY_GAP, LATENCY_GAP_S)):
        for near in _gaps(sorted(distances.values()), ratio, difference):
            racks = _mutual_neighbours(
                count, {pair for pair, distance in distances.items() if distance <= near}
            )
            if racks:
                return racks
    return (tuple(range(count)),)


def settle_rates(
    rates: Matrix, racks: Racks, alone: Flows, at_once: Sequence[Flows]
) -> tuple[list[Directions | None], list[list[float]]]:
    """Trunk rate of every rack (None: not shared), and the one-flow rates of all pairs of hosts.

    `rates` are from a tournament, where pairs that crossed a trunk in the same round shared it; `alone` has one flow
    for each pair of racks that ran alone. Where the trunk turns out to be shared, its pairs get that flow's rate,
    within what the two hosts' links carry.
    """
    likely = _without_contention(rates, racks, alone)
    trunks = [_trunk(rack, likely, at_once) for rack in racks]
    place = {host: index for index, rack in enumerate(racks) for host in rack}

    def shared(i: int, j: int) -> bool:
        return place[i] != place[j] and (trunks[place[i]] is not None or trunks[place[j]] is not None)

    hosts = range(len(rates))
    return trunks, [[likely[i][j] if shared(i, j) else rates[i][j] for j in hosts] for i in hosts]


def settle_capacities(
    rates: Matrix, racks: Racks, alone: Flows
) -> tuple[list[Directions | None], list[list[float]]]:
    """Like `settle_rates`, but from capacities: the narrowest link of each path, whatever else uses it.

    Where the path between racks is narrower than its hosts' links, the narrow link is a trunk, which all pairs of the
    two racks share. A trunk wider than one host's link remains invisible.
    """
    likely = _without_contention(rates, racks, alone)
    widest = [[0.0, 0.0] for _ in racks]
    reached = [[0.0, 0.0] for _ in racks]
    place = {host: index for index, rack in enumerate(racks) for host in rack}
    for (source, destination), rate in alone.items():
        links = min(_fastest_out(rates, source), _fastest_in(rates, destination))
        for side, rack in enumerate((place[source], place[destination])):
            widest[rack][side] = max(widest[rack][side], rate)
            reached[rack][side] = max(reached[rack][side], rate / links)
    trunks = [
        in_short(*rate) if min(rate) > 0 and min(part) < SHARED_BELOW else None
        for rate, part in zip(widest, reached, strict=True)
    ]
    hosts = range(len(rates))
    return trunks, [[likely[i][j] if place[i] != place[j] else rates[i][j] for j in hosts] for i in hosts]


def slow_flows(rates: Matrix, below: float = SHARED_BELOW) -> list[tuple[int, int]]:
    """Pairs (source, destination) below this fraction of the links of both, the slowest first.

    >>> slow_flows([[0, 10, 4], [10, 0, 10], [10, 10, 0]])
    [(0, 2)]
    """
    hosts = range(len(rates))
    reached = {
        (i, j): rates[i][j] / min(_fastest_out(rates, i), _fastest_in(rates, j))
        for i in hosts
        for j in hosts
        if i != j
    }
    return sorted((pair for pair, part in reached.items() if part < below), key=lambda pair: reached[pair])


def fastest_pair(rates: Matrix, first: Sequence[int], second: Sequence[int]) -> tuple[int, int]:
    """The hosts of two racks with the fastest flow between them, judged by the slower direction.

    >>> fastest_pair([[0, 0, 5, 9], [0, 0, 7, 9], [9, 9, 0, 0], [1, 2, 0, 0]], (0, 1), (2, 3))
    (1, 2)
    """
    return max(
        ((i, j) for i in first for j in second),
        key=lambda pair: min(rates[pair[0]][pair[1]], rates[pair[1]][pair[0]]),
    )


def host_rates(alone: Matrix, duplex: Flows) -> list[Directions]:
    """Rate of every host's own link, by direction where they differ.

    It is the host's fastest flow out and in, less the loss from sending and receiving at once, which the flows of `duplex` show.
    """
    rates = []
    for host in range(len(alone)):
        kept = [rate / alone[i][j] for (i, j), rate in duplex.items() if host in (i, j)]
        share = min(1.0, max(kept, default=1.0))
        rates.append(in_short(share * _fastest_out(alone, host), share * _fastest_in(alone, host)))
    return rates


def in_short(out: float, into: float) -> Directions:
    """Return the rates of a link's directions; the slower one where measurements do not tell them apart.

    >>> in_short(9.5e8, 1e9), in_short(2e7, 1e8)
    (950000000.0, (20000000.0, 100000000.0))
    """
    slower = min(out, into)
    return slower if slower >= LOPSIDED * max(out, into) else directions(out, into)


def _without_contention(rates: Matrix, racks: Racks, alone: Flows) -> list[list[float]]:
    likely = [list(row) for row in rates]
    place = {host: rack for rack in racks for host in rack}
    for (source, destination), rate in alone.items():
        for i in place[source]:
            for j in place[destination]:
                likely[i][j] = min(rate, _fastest_out(rates, i), _fastest_in(rates, j))
    return likely


def _trunk(rack: tuple[int, ...], alone: Matrix, at_once: Sequence[Flows]) -> Directions | None:
    """The highest rates across the rack's boundary; None if simultaneous flows lost nothing in either direction.

    If one flow alone came near such a rate, it filled the trunk, and its undisturbed rate is the better measurement.
    """
    best, shared = [], False
    for out in (True, False):
        rounds = [
            {(i, j): rate for (i, j), rate in flows.items() if (i in rack) == out and (j in rack) != out}
            for flows in at_once
        ]
        busy = [flows for flows in rounds if len(flows) > 1]
        lost = all(sum(flows.values()) < SHARED_BELOW * _expected(flows, alone) for flows in busy)
        shared = shared or (lost and bool(busy))
        if busy:
            together = max(sum(flows.values()) for flows in busy)
            single = max(alone[i][j] for flows in busy for i, j in flows)
            best.append(single if lost and together < FILLED_BY_ONE * single else together)
    if not shared:
        return None
    return in_short(*best) if len(best) > 1 else best[0]


def _expected(flows: Flows, alone: Matrix) -> float:
    """Sum of the flows' rates without a trunk between: each its rate alone, within hosts' links."""
    out = sum(
        min(_fastest_out(alone, host), sum(alone[i][j] for i, j in flows if i == host))
        for host in {i for i, _ in flows}
    )
    into = sum(
        min(_fastest_in(alone, host), sum(alone[i][j] for i, j in flows if j == host))
        for host in {j for _, j in flows}
    )
    return min(out, into)


def _fastest_out(rates: Matrix, host: int) -> float:
    return max(rate for peer, rate in enumerate(rates[host]) if peer != host)


def _fastest_in(rates: Matrix, host: int) -> float:
    return max(row[host] for peer, row in enumerate(rates) if peer != host)


def _gaps(distances: list[float], ratio: float, difference: float) -> list[float]:
    """Distances just below a gap, the widest gap first."""
    steps = [(b / a if a > 0 else float("inf"), a, b) for a, b in pairwise(distances)]
    return [a for step, a, b in sorted(steps, reverse=True) if step >= ratio and b - a >= difference]


def _mutual_neighbours(count: int, near: set[tuple[int, int]]) -> tuple[tuple[int, ...], ...] | None:
    """Groups whose hosts are near each other and near no other group; None if there are none."""
    groups: dict[frozenset[int], None] = {}
    for host in range(count):
        near_host = {j if i == host else i for i, j in near if host in (i, j)}
        groups[frozenset(near_host | {host})] = None
    if sum(len(group) for group in groups) != count or len(groups) < 2:
        return None
    return tuple(sorted(tuple(sorted(group)) for group in groups))
