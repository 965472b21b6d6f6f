"""Network of a cluster file, as planners, policies, simulator and orders see it.

Its links are each host's own link (out and in), each rack's trunk (out and in), the path between two hosts if it was measured,
and the memory that ranks of one host share. This file knows nothing of ranks, algorithms or time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.cluster_check import check
from hocket.artefacts.ways import latency_matrix

GOODPUT = 1448 / 1514
"""Payload of a full TCP segment over its Ethernet frame: the share of a nominal rate that is left for gradients. A
probe measures payload, so measured rates are used as they are."""

LATENCY_S = 100e-6
"""One-way latency between hosts without a measurement: that of an ordinary switched network."""

BIT_PER_S = 1e10
"""Rate of every link between hosts without a cluster file."""

WITHIN_HOST_LATENCY_S = 5e-6
"""One-way latency between ranks of one host: a futex wake-up."""

WITHIN_HOST_BIT_PER_S = 40e9
"""Rate between ranks of one host through shared memory without a measurement: 5 GB/s, one server core."""


@dataclass(frozen=True)
class Link:
    """One direction of a link. `name` is for people; rates count payload.

    `beside_bit_per_s`: rate that each pair of hosts on this link also has over further cards, which are on networks of their
    own, without racks.
    """

    name: str
    bit_per_s: float
    beside_bit_per_s: float = 0.0


@dataclass(frozen=True)
class Network:
    """Links; by ordered pair of host indices, the links that bytes cross, in order, and the latency; within a host, memory."""

    links: tuple[Link, ...]
    paths: Mapping[tuple[int, int], tuple[int, ...]]
    latencies_s: Mapping[tuple[int, int], float]

    def bit_per_s(self, source: int, destination: int) -> float:
        """Return the rate of the narrowest link from host to host."""
        crossed = (self.links[link] for link in self.paths[source, destination])
        return min(link.bit_per_s + link.beside_bit_per_s for link in crossed)


def network(cluster: Cluster, among: Sequence[int] | None = None) -> Network:
    """Return the network between all hosts of a cluster, or the hosts `among` them.

    Raises ArtefactError if the cluster contradicts itself.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> both = network(Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab")))
    >>> [both.links[link].name for link in both.paths[0, 1]]
    ['a out', 'b in']
    """
    check(cluster)
    used = range(len(cluster.hosts)) if among is None else sorted(set(among))
    measured = cluster.bandwidth_bit_per_s
    known_s = latency_matrix(cluster)
    goodput = 1.0 if measured else GOODPUT
    uplinks = {rack.name: rack.uplink_bit_per_s for rack in cluster.racks}
    links: list[Link] = []
    paths: dict[tuple[int, int], tuple[int, ...]] = {}
    latencies_s: dict[tuple[int, int], float] = {}
    for host in used:
        rate = (measured[host][host] if measured else 0.0) or WITHIN_HOST_BIT_PER_S
        links.append(Link(f"memory of {cluster.hosts[host].name}", rate))
        paths[host, host] = (len(links) - 1,)
        latencies_s[host, host] = WITHIN_HOST_LATENCY_S
    found: dict[str, int] = {}
    common = cards(cluster, used)
    rates = {at: used_bit_per_s(cluster.hosts[at], common) for at in used}
    beside = min(sum(cluster.hosts[at].cards_bit_per_s[1:common]) for at in used) * goodput

    def link(name: str, bit_per_s: float, beside_bit_per_s: float = 0.0) -> int:
        if name not in found:
            found[name] = len(links)
            links.append(Link(name, bit_per_s, beside_bit_per_s))
        return found[name]

    for i, j in ((i, j) for i in used for j in used if i != j):
        source, destination = cluster.hosts[i], cluster.hosts[j]
        path = [link(f"{source.name} out", rates[i] * goodput)]
        if source.rack != destination.rack:
            for rack, side in ((source.rack, "out"), (destination.rack, "in")):
                uplink = uplinks.get(rack)
                if uplink is not None:
                    path.append(link(trunk_name(rack, side), uplink * goodput, beside))
        path.append(link(f"{destination.name} in", rates[j] * goodput))
        if measured:
            path.append(link(pair_name(source.name, destination.name), measured[i][j]))
        paths[i, j] = tuple(path)
        latencies_s[i, j] = LATENCY_S if known_s is None else known_s[i][j]
    return Network(tuple(links), paths, latencies_s)


def restricted(cluster: Cluster, hosts: Sequence[int]) -> Cluster:
    """Return the cluster with only these hosts, in this order."""

    def rows(matrix: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(matrix[a][b] for b in hosts) for a in hosts) if matrix else ()

    return msgspec.structs.replace(
        cluster,
        hosts=tuple(cluster.hosts[host] for host in hosts),
        latency_s=rows(cluster.latency_s),
        bandwidth_bit_per_s=rows(cluster.bandwidth_bit_per_s),
        streams=tuple(tuple(cluster.streams[a][b] for b in hosts) for a in hosts) if cluster.streams else (),
    )


def cards(cluster: Cluster, among: Iterable[int] | None = None) -> int:
    """Return the number of cards that every host has, or every host `among` them; 1 if one has a single card."""
    used = range(len(cluster.hosts)) if among is None else among
    return max(1, min(len(cluster.hosts[at].cards_bit_per_s) for at in used))


def used_bit_per_s(host: Host, count: int) -> float:
    """Return the rate of a host's first `count` cards, which the wire uses: networks that some host lacks are left out.

    >>> host = Host(name="a", bandwidth_bit_per_s=3e9, cards_bit_per_s=(1e9, 2e9))
    >>> used_bit_per_s(host, 1), used_bit_per_s(host, 2)
    (1000000000.0, 3000000000.0)
    """
    own = host.cards_bit_per_s
    if len(own) <= count:
        return host.bandwidth_bit_per_s
    return host.bandwidth_bit_per_s * sum(own[:count]) / sum(own)


def of_card(cluster: Cluster, card: int) -> Cluster:
    """Return the cluster with one of the cards that all hosts have: the first is behind racks, others on networks of their own."""
    hosts = (
        msgspec.structs.replace(host, bandwidth_bit_per_s=host.cards_bit_per_s[card], cards_bit_per_s=())
        for host in cluster.hosts
    )
    racks = (
        cluster.racks
        if card == 0
        else tuple(msgspec.structs.replace(rack, uplink_bit_per_s=None) for rack in cluster.racks)
    )
    return msgspec.structs.replace(cluster, hosts=tuple(hosts), racks=racks)


def raised(cluster: Cluster, least_bit_per_s: Mapping[str, float]) -> Cluster:
    """Return the cluster with rates of hosts' links and trunks raised to at least these, by link name; rates count payload.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> one = Cluster(hosts=(Host(name="a", bandwidth_bit_per_s=1e8),))
    >>> round(raised(one, {"a out": 2e8, "a in": 1e7}).hosts[0].bandwidth_bit_per_s / 1e6)
    209
    """
    goodput = 1.0 if cluster.bandwidth_bit_per_s else GOODPUT

    def at_least(rate: float, *names: str) -> float:
        return max(rate, *(least_bit_per_s.get(name, 0.0) / goodput for name in names))

    hosts = (
        msgspec.structs.replace(
            host,
            bandwidth_bit_per_s=at_least(host.bandwidth_bit_per_s, f"{host.name} out", f"{host.name} in"),
        )
        for host in cluster.hosts
    )
    racks = (
        rack
        if rack.uplink_bit_per_s is None
        else msgspec.structs.replace(
            rack,
            uplink_bit_per_s=at_least(
                rack.uplink_bit_per_s, trunk_name(rack.name, "out"), trunk_name(rack.name, "in")
            ),
        )
        for rack in cluster.racks
    )
    names = [host.name for host in cluster.hosts]
    pairs = tuple(
        tuple(
            max(rate, least_bit_per_s.get(pair_name(names[i], names[j]), 0.0)) for j, rate in enumerate(row)
        )
        for i, row in enumerate(cluster.bandwidth_bit_per_s)
    )
    return msgspec.structs.replace(cluster, hosts=tuple(hosts), racks=tuple(racks), bandwidth_bit_per_s=pairs)


def pair_name(source: str, destination: str) -> str:
    """Return the name of the measured single path between two hosts."""
    return f"{source} to {destination}"


def trunk_name(rack: str, side: str) -> str:
    """Return the name of a rack's link to the other racks; `side` is `out` or `in`."""
    return f"trunk of {rack} {side}"


def trunk_names(cluster: Cluster) -> set[str]:
    """Return the names of all racks' trunks, both sides."""
    return {trunk_name(rack.name, side) for rack in cluster.racks for side in ("out", "in")}
