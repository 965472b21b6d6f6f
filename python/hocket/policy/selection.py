"""Choice of the fastest algorithm for a group of ranks and a size from a tuning: a pure function of measurements.

The ladder with the shape nearest to the group's decides. Times are interpolated between sizes: a collective takes latency plus
bytes over bandwidth, which is nearly linear between two neighbouring sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import log2

from hocket.artefacts.tuning import Ladder, NetworkShape, Point, Runner, Tuning
from hocket.policy.topology import Topology

LATENCY_S_MIN = 2e-5
"""Least latency of a network: a lower one comes from the processors."""

TIE = 0.02
"""Relative difference below which times are equal: smaller ones are noise, as between two runs of one algorithm. The algorithm
named first wins."""


def fastest(ladder: Ladder, size_bytes: int, among: Sequence[str]) -> str | None:
    """The algorithm in `among` with the smallest time, the first of equals; None if none was measured.

    >>> from hocket.artefacts.tuning import Point, Timing
    >>> timing = lambda name, time_s: Timing(algorithm=name, median_s=time_s, p10_s=time_s, p90_s=time_s, rounds=1)
    >>> points = (Point(size_bytes=8, timings=(timing("ring", 3.0), timing("direct", 1.0))),)
    >>> fastest(Ladder(collective="all_reduce", shape=NetworkShape(ranks=4), points=points), 8, ["ring", "direct"])
    'direct'
    """
    times_s = seconds(ladder, size_bytes)
    known = [name for name in among if name in times_s]
    if not known:
        return None
    limit_s = min(times_s[name] for name in known) * (1 + TIE)
    return next(name for name in known if times_s[name] <= limit_s)


def seconds(ladder: Ladder, size_bytes: int) -> dict[str, float]:
    """Time of each algorithm at that size, by name.

    Interpolates linearly between neighbouring sizes; below the smallest size its time holds, above the largest the time is
    proportional to the size.
    """
    points = sorted(ladder.points, key=lambda point: point.size_bytes)
    first, last = points[0], points[-1]
    if size_bytes <= first.size_bytes:
        return _medians(first)
    if size_bytes >= last.size_bytes:
        return {name: time_s * size_bytes / last.size_bytes for name, time_s in _medians(last).items()}
    below, above = next(pair for pair in pairwise(points) if size_bytes <= pair[1].size_bytes)
    share = (size_bytes - below.size_bytes) / (above.size_bytes - below.size_bytes)
    low_s, high_s = _medians(below), _medians(above)
    return {name: low_s[name] + share * (high_s[name] - low_s[name]) for name in low_s if name in high_s}


def nearest(tuning: Tuning, collective: str, shape: NetworkShape, runner: Runner = "engine") -> Ladder | None:
    """The ladder of the most similar group, the first of equals.

    One host and several hosts are never similar; None if no ladder is left.
    """
    fitting = [
        ladder
        for ladder in tuning.ladders
        if (ladder.collective, ladder.runner) == (collective, runner)
        and (ladder.shape.hosts == 1) == (shape.hosts == 1)
    ]
    return min(fitting, key=lambda ladder: distance(ladder.shape, shape), default=None)


def network_shape(group: Sequence[int], topology: Topology) -> NetworkShape:
    """The network shape of a group."""
    hosts = {topology.hosts[rank]: rank for rank in group}
    racks = {topology.racks[rank] for rank in group}
    if len(hosts) == 1:
        return NetworkShape(ranks=len(group))
    pairs = [(a, b) for a in hosts.values() for b in hosts.values() if a != b]
    links = {pair: topology.link(*pair) for pair in pairs}
    within = [links[a, b].bandwidth for a, b in pairs if topology.racks[a] == topology.racks[b]]
    between = [links[a, b].bandwidth for a, b in pairs if topology.racks[a] != topology.racks[b]]
    return NetworkShape(
        ranks=len(group),
        hosts=len(hosts),
        racks=len(racks),
        bit_per_s=min(link.bandwidth for link in links.values()),
        latency_s=max(link.latency for link in links.values()),
        rack_slowdown=max(1.0, min(within) / min(between)) if within and between else 1.0,
    )


def flat_bytes(tuning: Tuning, ranks: int) -> tuple[int, int]:
    """Bytes up to which a flat all-reduce by calling threads is faster, in registered memory and in other memory.

    It is the largest measured size such that this and all smaller sizes are faster flat; 0 if there is none.
    """
    shape = NetworkShape(ranks=ranks)
    return _flat_bytes(nearest(tuning, "all_reduce", shape, "thread_registered")), _flat_bytes(
        nearest(tuning, "all_reduce", shape, "thread")
    )


def _flat_bytes(ladder: Ladder | None) -> int:
    limit = 0
    for point in sorted(ladder.points, key=lambda point: point.size_bytes) if ladder else ():
        times_s = _medians(point)
        if times_s.get("flat", float("inf")) > times_s.get("parts", float("inf")):
            break
        limit = point.size_bytes
    return limit


def _medians(point: Point) -> dict[str, float]:
    return {timing.algorithm: timing.median_s for timing in point.timings}


def distance(a: NetworkShape, b: NetworkShape) -> float:
    """Distance of two shapes: the factors between them, in powers of two."""
    pairs = [(a.ranks / a.hosts, b.ranks / b.hosts), (a.hosts, b.hosts), (a.racks, b.racks)]
    pairs.append((a.rack_slowdown, b.rack_slowdown))
    if a.bit_per_s is not None and b.bit_per_s is not None:
        pairs.append((a.bit_per_s, b.bit_per_s))
    if a.latency_s is not None and b.latency_s is not None:
        pairs.append((max(a.latency_s, LATENCY_S_MIN), max(b.latency_s, LATENCY_S_MIN)))
    return sum(abs(log2(x / y)) for x, y in pairs)
