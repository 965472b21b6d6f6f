"""Checks of clusters: hosts, rates and matrices that fit each other, and numbers with which others can calculate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from hocket.artefacts.cluster import Cluster, Directions, ends
from hocket.artefacts.names import check_hosts
from hocket.errors import ArtefactError

BIT_PER_S_MAX = 1e18
SLOTS_MAX = 1 << 16
"""Limit of all hosts' slots together: ranks have numbers of 16 bits."""

STREAMS_MAX = 1 << 10
SEED_MAX = (1 << 64) - 1


def check(cluster: Cluster, *, name: str = "cluster", unmeasured: bool = False) -> None:
    """Raise ArtefactError with the first fault.

    Latencies, jitter and loss have checks of their own (`ways.py`).

    Args:
        cluster: the cluster as it was read or made.
        name: the cluster's name in messages.
        unmeasured: True: pairs of hosts that do not reach each other may be nan or inf in matrices.
    """
    if not cluster.hosts:
        raise ArtefactError(f"{name}: it has no hosts\nhint: `hocket probe` writes a cluster file")
    check_hosts((host.name for host in cluster.hosts), name)
    for fault in (*_hosts(cluster), *_matrices(cluster, unmeasured=unmeasured), *_relays(cluster)):
        raise ArtefactError(f"{name}: {fault}")


def _hosts(cluster: Cluster) -> Iterator[str]:
    if len({host.name for host in cluster.hosts}) != len(cluster.hosts):
        yield "two hosts have the same name\nhint: names must be unique"
    for host in cluster.hosts:
        of = f"of host {host.name}"
        if host.slots < 1:
            yield f"`slots` {of} is {host.slots}: it must be at least 1\nhint: leave the host out"
        yield from _rates(f"`bandwidth_bit_per_s` {of}", host.bandwidth_bit_per_s)
        for card in host.cards_bit_per_s:
            yield from _rates(f"`cards_bit_per_s` {of}", card)
        if host.flow_bit_per_s is not None:
            yield from _rate(f"`flow_bit_per_s` {of}", host.flow_bit_per_s)
    slots = sum(host.slots for host in cluster.hosts)
    if slots > SLOTS_MAX:
        yield f"its hosts have {slots} slots: a job has at most {SLOTS_MAX} ranks"
    if len({rack.name for rack in cluster.racks}) != len(cluster.racks):
        yield "two racks have the same name\nhint: names must be unique"
    for rack in cluster.racks:
        if rack.uplink_bit_per_s is not None:
            yield from _rates(f"`uplink_bit_per_s` of rack {rack.name}", rack.uplink_bit_per_s)
    if cluster.seed is not None and not 0 <= cluster.seed <= SEED_MAX:
        yield f"`seed` is {cluster.seed}: it is a number of 64 bits"


def _relays(cluster: Cluster) -> Iterator[str]:
    names = {host.name for host in cluster.hosts}
    apart = [ends(way) for way in cluster.relays if way]
    for way in cluster.relays:
        what = f"the way {' - '.join(way)} in `relays`"
        if len(way) < 3 or len(set(way)) < len(way):
            yield f"{what} is not three or more different hosts\nhint: two hosts, and between them those that they both reach"
        if strange := [name for name in way if name not in names]:
            yield f"{what} leads through {strange[0]}, which is none of the hosts\nhint: a relay has a rank of the job, too"
        if apart.count(ends(way)) > 1:
            yield f"`relays` has two ways between {way[0]} and {way[-1]}\nhint: leave one out"
        if hop := next((hop for hop in pairwise(way) if frozenset(hop) in apart), None):
            yield f"{what}: {hop[0]} and {hop[1]} do not reach each other, either\nhint: name the hosts between them, too"


def _matrices(cluster: Cluster, *, unmeasured: bool) -> Iterator[str]:
    names = [host.name for host in cluster.hosts]
    for title in ("latency_s", "latency_precision", "bandwidth_bit_per_s", "streams"):
        matrix: Sequence[Sequence[float]] = getattr(cluster, title)
        count = len(names)
        if matrix and (len(matrix) != count or any(len(row) != count for row in matrix)):
            yield f"`{title}` is not {count} rows of {count}, one for each host"
            return
    for source, row in zip(names, cluster.bandwidth_bit_per_s, strict=False):
        for destination, rate in zip(names, row, strict=True):
            if source == destination:
                # Rate of the host's own memory; 0: not measured.
                yield from _rate(f"bandwidth within {source}", rate) if rate != 0 else ()
            elif not (unmeasured and not math.isfinite(rate)):
                yield from _rate(f"bandwidth from {source} to {destination}", rate)
    for source, row in zip(names, cluster.latency_precision, strict=False):
        for destination, share in zip(names, row, strict=True):
            if not (0 <= share < math.inf or unmeasured):
                yield f"`latency_precision` from {source} to {destination} is {share}: it is a share from 0 on"
    for source, counts in zip(names, cluster.streams, strict=False):
        for destination, streams in zip(names, counts, strict=True):
            if not 0 <= streams <= STREAMS_MAX:
                yield f"`streams` from {source} to {destination} is {streams}: it is from 1 to {STREAMS_MAX}"


def _rates(what: str, given: Directions) -> Iterator[str]:
    """Faults of a rate that may differ by direction, named with the direction."""
    if isinstance(given, tuple | list):
        for side, bit_per_s in zip(("out", "in"), given, strict=True):
            yield from _rate(f"{what}, {side},", bit_per_s)
    else:
        yield from _rate(what, given)


def _rate(what: str, bit_per_s: float) -> Iterator[str]:
    if not 0 < bit_per_s < math.inf:  # also catches NaN
        yield f"{what} is {bit_per_s}: it must be above 0 and finite"
    elif not 1 <= bit_per_s <= BIT_PER_S_MAX:
        yield f"{what} is {bit_per_s:g}: it is a rate in bit/s, from 1 to {BIT_PER_S_MAX:g}"
