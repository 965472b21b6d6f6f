"""Inference of links' rates from changed rates of a job's own connections. Pure.

If a flow's rate halves, so did the rate of its bottleneck: a host's link, a trunk, or the path itself. The job's other flows tell
which: a link that also limits an unchanged flow is not the cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from hocket.artefacts.cluster import Cluster, Directions, both, directions
from hocket.artefacts.network import network, pair_name, trunk_name

CHANGED, SAME = 1.3, 1.1
"""Ratios, either way, above which a rate has changed, and below which it has not. Between the two, a rate counts as changed if
related ones have changed."""

NARROW = 1.5
"""Ratio to the narrowest rate on a path up to which a link may limit a flow."""


def rescaled(
    cluster: Cluster, hosts: Sequence[str], ratios: Mapping[tuple[int, int], float]
) -> Cluster | None:
    """Rescale hosts' links and trunks in a cluster by the change of the flows that they limit, in both directions; None if that
    explains no change, or not all, such as a single path that became slow.

    Args:
        cluster: the cluster before the change.
        hosts: host of each rank.
        ratios: rate of a flow now over its rate before, by sending and receiving rank.

    >>> from hocket.artefacts.cluster import Host, Rack
    >>> racks = tuple(Rack(name=name, uplink_bit_per_s=1e8) for name in "ab")
    >>> names = ("h0", "h1", "h2", "h3")
    >>> places = tuple(Host(name=name, rack="ab"[at % 2], bandwidth_bit_per_s=1e9) for at, name in enumerate(names))
    >>> ratios = {(0, 1): 0.5, (1, 0): 0.5, (0, 2): 1.1, (2, 0): 0.9}
    >>> found = rescaled(Cluster(hosts=places, racks=racks), names, ratios)
    >>> [rack.uplink_bit_per_s for rack in found.racks], {host.bandwidth_bit_per_s for host in found.hosts}
    ([50000000.0, 50000000.0], {1000000000.0})
    """
    known, owner = network(cluster), _owners(cluster)
    place = {host.name: at for at, host in enumerate(cluster.hosts)}
    limits: dict[tuple[int, int], set[str]] = {}
    said: dict[str, list[float]] = {}
    for pair, ratio in ratios.items():
        source, destination = (place[hosts[rank]] for rank in pair)
        if source == destination:
            continue
        path = [known.links[link] for link in known.path(source, destination)[0]]
        narrowest = min(link.bit_per_s for link in path)
        limits[pair] = {owner[link.name] for link in path if link.bit_per_s <= NARROW * narrowest}
        for name in limits[pair]:
            said.setdefault(name, []).append(ratio)
    factors = {name: median(each) for name, each in said.items() if _agree(each)}
    changed = [limits[pair] for pair in limits if _changed(ratios[pair])]
    # If its ends have no other flow, the flow's own path alone may be slow.
    sure = {name for name in factors if len(said[name]) > 1}
    if not changed or not all(names & sure for names in changed):
        return None
    return _scaled(cluster, {name: factors[name] for name in sure})


def _owners(cluster: Cluster) -> dict[str, str]:
    """Owner of each link's rate in a cluster, by the link's name: a host, a rack's trunk or a path, in both directions."""
    sides = [(f"{host.name} {side}", host.name) for host in cluster.hosts for side in ("out", "in")]
    trunks = [
        (trunk_name(rack.name, side), _trunk(rack.name)) for rack in cluster.racks for side in ("out", "in")
    ]
    names = [host.name for host in cluster.hosts]
    paths = [(pair_name(a, b), pair_name(a, b)) for a in names for b in names]
    return dict([*sides, *trunks, *paths])


def _trunk(rack: str) -> str:
    return f"trunk of {rack}"


def _scaled(cluster: Cluster, factors: Mapping[str, float]) -> Cluster:
    hosts = tuple(
        msgspec.structs.replace(
            host, bandwidth_bit_per_s=_times(host.bandwidth_bit_per_s, factors.get(host.name, 1.0))
        )
        for host in cluster.hosts
    )
    racks = tuple(
        rack
        if rack.uplink_bit_per_s is None
        else msgspec.structs.replace(
            rack, uplink_bit_per_s=_times(rack.uplink_bit_per_s, factors.get(_trunk(rack.name), 1.0))
        )
        for rack in cluster.racks
    )
    names = [host.name for host in cluster.hosts]
    paths = tuple(
        tuple(rate * factors.get(pair_name(names[i], names[j]), 1.0) for j, rate in enumerate(row))
        for i, row in enumerate(cluster.bandwidth_bit_per_s)
    )
    return msgspec.structs.replace(cluster, hosts=hosts, racks=racks, bandwidth_bit_per_s=paths)


def _times(given: Directions, factor: float) -> Directions:
    out, into = both(given)
    return directions(out * factor, into * factor)


def _changed(ratio: float) -> bool:
    return not 1 / CHANGED <= ratio <= CHANGED


def _agree(ratios: Sequence[float]) -> bool:
    """Return whether all rates have changed in the same direction."""
    return _changed(median(ratios)) and (max(ratios) < 1 / SAME or min(ratios) > SAME)
