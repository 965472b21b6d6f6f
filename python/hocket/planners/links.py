"""The link graph of a cluster: which links the bytes from one rank to another cross, and how fast each is.

Links are each host's own link (in and out), each rack's trunk (in and out), the single path between two hosts
where it was measured, and the memory that ranks of one host share. Knows nothing of algorithms or time.
"""

from __future__ import annotations

from dataclasses import dataclass

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.ways import latency_matrix
from hocket.errors import ArtefactError
from hocket.planners.order import placement

GOODPUT = 1448 / 1514
"""Payload of a full TCP segment over its Ethernet frame: what a rate written by hand leaves for gradients. A
probe measures payload, so measured rates are used as they are."""

LATENCY_S = 100e-6
"""One way between hosts where it was not measured: an ordinary switched network."""

WITHIN_HOST_LATENCY_S = 5e-6
"""One way between ranks of one host: a futex wake-up."""

WITHIN_HOST_BIT_PER_S = 40e9
"""Ranks of one host copying through shared memory, where it was not measured: 5 GB/s, one server core."""

SLOW_SHARE = 0.5
"""A path is slow when its rate is below this share of the fastest path between hosts."""


@dataclass(frozen=True)
class Link:
    """One direction of one wire. `name` is for people."""

    name: str
    bit_per_s: float


@dataclass(frozen=True)
class LinkGraph:
    """Links, and for every ordered pair of ranks the indices of those that its bytes cross, in order."""

    hosts: tuple[int, ...]
    links: tuple[Link, ...]
    paths: dict[tuple[int, int], tuple[int, ...]]
    latencies_s: dict[tuple[int, int], float]

    def path_bit_per_s(self, source: int, destination: int) -> float:
        """Rate of the narrowest link from rank to rank."""
        return min(self.links[link].bit_per_s for link in self.paths[source, destination])

    def slow_pairs(self) -> tuple[tuple[int, int], ...]:
        """Ordered pairs of ranks on different hosts whose path is slower than half the fastest such path."""
        rates = {pair: self.path_bit_per_s(*pair) for pair in self.remote_pairs()}
        fastest = max(rates.values(), default=0.0)
        return tuple(pair for pair, rate in rates.items() if rate < SLOW_SHARE * fastest)

    def remote_pairs(self) -> tuple[tuple[int, int], ...]:
        """Ordered pairs of ranks on different hosts, ascending."""
        return tuple(pair for pair in sorted(self.paths) if self.hosts[pair[0]] != self.hosts[pair[1]])


def link_graph(cluster: Cluster, world: int) -> LinkGraph:
    """The links between the ranks of a job.

    Raises ArtefactError when the cluster contradicts itself, UsageError when it has too few slots.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab")
    >>> graph = link_graph(Cluster(hosts=hosts), 2)
    >>> [graph.links[link].name for link in graph.paths[0, 1]]
    ['a out', 'b in']
    """
    _check(cluster)
    known = latency_matrix(cluster)
    hosts = placement(cluster, world)
    used = sorted(set(hosts))
    links: list[Link] = []
    within: dict[int, tuple[int, ...]] = {host: _memory(cluster, host, links) for host in used}
    between = _between(cluster, used, links)
    paths = {}
    latencies_s = {}
    for source in range(world):
        for destination in range(world):
            if source == destination:
                continue
            pair = (hosts[source], hosts[destination])
            paths[source, destination] = within[pair[0]] if pair[0] == pair[1] else between[pair]
            latencies_s[source, destination] = _latency_s(known, *pair)
    return LinkGraph(hosts=hosts, links=tuple(links), paths=paths, latencies_s=latencies_s)


def _between(cluster: Cluster, used: list[int], links: list[Link]) -> dict[tuple[int, int], tuple[int, ...]]:
    goodput = 1.0 if cluster.bandwidth_bit_per_s else GOODPUT
    uplinks = {rack.name: rack.uplink_bit_per_s for rack in cluster.racks}
    found: dict[str, int] = {}

    def link(name: str, bit_per_s: float) -> int:
        if name not in found:
            found[name] = len(links)
            links.append(Link(name, bit_per_s))
        return found[name]

    paths = {}
    for i in used:
        for j in used:
            if i == j:
                continue
            source, destination = cluster.hosts[i], cluster.hosts[j]
            path = [link(f"{source.name} out", source.bandwidth_bit_per_s * goodput)]
            if source.rack != destination.rack:
                for rack, side in ((source.rack, "out"), (destination.rack, "in")):
                    uplink = uplinks.get(rack)
                    if uplink is not None:
                        path.append(link(f"trunk of {rack} {side}", uplink * goodput))
            path.append(link(f"{destination.name} in", destination.bandwidth_bit_per_s * goodput))
            if cluster.bandwidth_bit_per_s:
                path.append(link(f"{source.name} to {destination.name}", cluster.bandwidth_bit_per_s[i][j]))
            paths[i, j] = tuple(path)
    return paths


def _memory(cluster: Cluster, host: int, links: list[Link]) -> tuple[int, ...]:
    measured = cluster.bandwidth_bit_per_s[host][host] if cluster.bandwidth_bit_per_s else 0.0
    links.append(Link(f"memory of {cluster.hosts[host].name}", measured or WITHIN_HOST_BIT_PER_S))
    return (len(links) - 1,)


def _latency_s(known: tuple[tuple[float, ...], ...] | None, source: int, destination: int) -> float:
    if source == destination:
        return WITHIN_HOST_LATENCY_S
    return LATENCY_S if known is None else known[source][destination]


def _check(cluster: Cluster) -> None:
    if not cluster.hosts:
        raise ArtefactError("cluster: it has no hosts\nhint: `hocket probe` writes a cluster file")
    count = len(cluster.hosts)
    if len({host.name for host in cluster.hosts}) != count:
        raise ArtefactError("cluster: two hosts have the same name\nhint: names must be unique")
    for title in ("latency_s", "bandwidth_bit_per_s"):
        matrix = getattr(cluster, title)
        if matrix and (len(matrix) != count or any(len(row) != count for row in matrix)):
            raise ArtefactError(f"cluster: `{title}` is not {count} rows of {count}, one for each host")
    for host in cluster.hosts:
        _check_rate(f"`bandwidth_bit_per_s` of host {host.name}", host.bandwidth_bit_per_s)
    for rack in cluster.racks:
        if rack.uplink_bit_per_s is not None:
            _check_rate(f"`uplink_bit_per_s` of rack {rack.name}", rack.uplink_bit_per_s)
    for i, row in enumerate(cluster.bandwidth_bit_per_s):
        for j, rate in enumerate(row):
            if i != j:
                _check_rate(f"bandwidth from {cluster.hosts[i].name} to {cluster.hosts[j].name}", rate)


def _check_rate(what: str, bit_per_s: float) -> None:
    if not 0 < bit_per_s < float("inf"):
        raise ArtefactError(f"cluster: {what} is {bit_per_s}: it must be above 0 and finite")
