"""What changed rates of a job's own connections say of the links that they cross. Pure.

A flow that carries half of what it did has lost half of what limits it on its path: a host's link, a trunk, or the path itself.
Flows of the same job tell which that is: it is nothing that limits an unchanged flow, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median

import msgspec

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.network import network, pair_name, trunk_name

CHANGED, SAME = 1.3, 1.1
"""A rate that differs by more than the first, either way, has changed; by less than the second, it has not. Between the two it may
have: it goes with others that have."""

NARROW = 1.5
"""Links on a path whose rates are within this of the narrowest one's may be what limits a flow."""


def rescaled(
    cluster: Cluster, hosts: Sequence[str], ratios: Mapping[tuple[int, int], float]
) -> Cluster | None:
    """The cluster whose hosts' links and trunks have become as much faster or slower as the flows that they limit, in both
    directions; None where that explains nothing, or not all that changed, such as one path that became slow by itself.

    Args:
        cluster: as it was.
        hosts: by rank.
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
        path = [known.links[link] for link in known.paths[source, destination]]
        narrowest = min(link.bit_per_s for link in path)
        limits[pair] = {owner[link.name] for link in path if link.bit_per_s <= NARROW * narrowest}
        for name in limits[pair]:
            said.setdefault(name, []).append(ratio)
    factors = {name: median(each) for name, each in said.items() if _agree(each)}
    changed = [limits[pair] for pair in limits if _changed(ratios[pair])]
    # A flow whose ends have no other flow may have lost its own path alone.
    sure = {name for name in factors if len(said[name]) > 1}
    if not changed or not all(names & sure for names in changed):
        return None
    return _scaled(cluster, {name: factors[name] for name in sure})


def _owners(cluster: Cluster) -> dict[str, str]:
    """By name of a link: of what has its rate in a cluster, a host, a rack's trunk or a path, in both directions."""
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
            host, bandwidth_bit_per_s=host.bandwidth_bit_per_s * factors.get(host.name, 1.0)
        )
        for host in cluster.hosts
    )
    racks = tuple(
        rack
        if rack.uplink_bit_per_s is None
        else msgspec.structs.replace(
            rack, uplink_bit_per_s=rack.uplink_bit_per_s * factors.get(_trunk(rack.name), 1.0)
        )
        for rack in cluster.racks
    )
    names = [host.name for host in cluster.hosts]
    paths = tuple(
        tuple(rate * factors.get(pair_name(names[i], names[j]), 1.0) for j, rate in enumerate(row))
        for i, row in enumerate(cluster.bandwidth_bit_per_s)
    )
    return msgspec.structs.replace(cluster, hosts=hosts, racks=racks, bandwidth_bit_per_s=paths)


def _changed(ratio: float) -> bool:
    return not 1 / CHANGED <= ratio <= CHANGED


def _agree(ratios: Sequence[float]) -> bool:
    """Whether they have changed, all in one direction."""
    return _changed(median(ratios)) and (max(ratios) < 1 / SAME or min(ratios) > SAME)
