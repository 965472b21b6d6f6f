"""Lower bound on the time of an all-reduce on a network, whatever the algorithm."""

from __future__ import annotations

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.network import cards, used_bit_per_s

BITS = 8


def bound_s(what: str, size_bytes: int, cluster: Cluster | None) -> float | None:
    """Return the bound in seconds; None for other collectives, and where the network is unknown.

    Of n hosts with equal links some must send 2 (n - 1) / n of the size (Patarasuk and Yuan, 2009); hosts with
    different rates must at least send their own part and receive the sum. A rack's sum must leave it, and the others'
    must enter, once each.

    >>> from hocket.artefacts.cluster import Host
    >>> hosts = tuple(Host(name=f"h{at}", rack="r", bandwidth_bit_per_s=2e8) for at in range(4))
    >>> bound_s("all_reduce", 12_000_000, Cluster(hosts=hosts, racks=()))
    0.72
    """
    if what != "all_reduce" or cluster is None or len(cluster.hosts) == 1:
        return None
    rates = [used_bit_per_s(host, cards(cluster)) for host in cluster.hosts]
    share = 2 * (len(rates) - 1) / len(rates) if min(rates) == max(rates) else 1.0
    bounds_s = [share * size_bytes * BITS / min(rates)]
    used = {host.rack for host in cluster.hosts}
    if len(used) > 1:
        uplinks = [rack.uplink_bit_per_s for rack in cluster.racks if rack.name in used]
        bounds_s += [size_bytes * BITS / each for each in uplinks if each is not None]
    return max(bounds_s)
