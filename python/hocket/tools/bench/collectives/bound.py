"""Lower bound on the time of an all-reduce on a network, whatever the algorithm."""

from __future__ import annotations

from hocket.artefacts.cluster import Cluster, both
from hocket.artefacts.network import IN, OUT, cards, used_bit_per_s

BITS = 8


def bound_s(what: str, size_bytes: int, cluster: Cluster | None) -> float | None:
    """Return the bound in seconds; None for other collectives, and where the network is unknown.

    All n hosts together send 2 (n - 1) times the size, and receive as much; each sends its own at least, and receives
    the sum (Patarasuk and Yuan, 2009, where rates are equal; Chen et al., arXiv 2606.01680, where they are not). A rack's
    sum must leave it, and the others' must enter, once each.

    >>> from hocket.artefacts.cluster import Host
    >>> hosts = tuple(Host(name=f"h{at}", rack="r", bandwidth_bit_per_s=2e8) for at in range(4))
    >>> bound_s("all_reduce", 12_000_000, Cluster(hosts=hosts, racks=()))
    0.72
    """
    if what != "all_reduce" or cluster is None or len(cluster.hosts) == 1:
        return None
    used = {host.rack for host in cluster.hosts}
    uplinks = [rack.uplink_bit_per_s for rack in cluster.racks if rack.name in used and len(used) > 1]
    trunks = [both(each) for each in uplinks if each is not None]
    size = size_bytes * BITS
    bounds_s = []
    for side in (OUT, IN):
        rates = [used_bit_per_s(host, cards(cluster))[side] for host in cluster.hosts]
        bounds_s += [2 * (len(rates) - 1) * size / sum(rates), size / min(rates)]
        bounds_s += [size / each[side] for each in trunks]
    return max(bounds_s)
