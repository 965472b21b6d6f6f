"""The network between ranks, as planners, policies, simulator and orders see it, and that of a cluster file.

The links of a cluster are each host's own link (out and in), each rack's trunk (out and in), the path between two hosts if it was
measured, and the memory that ranks of one host share. This file knows nothing of algorithms or time.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import msgspec

from hocket import _native
from hocket.artefacts.cluster import Cluster, Directions, Host, both, directions
from hocket.artefacts.cluster_check import check
from hocket.artefacts.ways import latency_matrix
from hocket.errors import ArtefactError

GOODPUT = 1448 / 1514
"""Payload of a full TCP segment over its Ethernet frame: the share of a nominal rate that is left for gradients. A
probe measures payload, so measured rates are used as they are."""

LATENCY_S = 100e-6
"""One-way latency between hosts without a measurement: that of an ordinary switched network."""

FAR_S = 1e-3
"""Least one-way latency between hosts that are far from each other: there, rounds cost most."""

BIT_PER_S = 1e10
"""Rate of every link between hosts without a cluster file."""

WITHIN_HOST_LATENCY_S = 5e-6
"""One-way latency between ranks of one host: a futex wake-up."""

WITHIN_HOST_BIT_PER_S = 40e9
"""Rate between ranks of one host through shared memory without a measurement: 5 GB/s, one server core."""


QUEUE_MS = 50
"""Delay of a full queue on the testbed: TCP fills a link with less, and more would only hide congestion."""

BURST_BYTES_MIN = 128 * 1024
"""Least burst of a token bucket: two of the largest segments that the stack passes down at once."""

BURST_S = 1e-3
"""Time whose traffic a token bucket must hold at high rates: that between two ticks of the timer."""

SLOW_SHARE = 0.5
"""Fraction of the rate of the fastest path between hosts below which a path is slow."""

OUT, IN = 0, 1
"""Indices of the directions of a host's or rack's links."""

SIDES = ("out", "in")
"""Directions in the names of links."""

Path = tuple[tuple[int, ...], float]
"""Indices of the links on the path, in order, and its latency in seconds."""


class Link(NamedTuple):
    """One direction of a link. `name` is for people; rates count payload.

    `beside_bit_per_s`: rate that each pair of hosts on this link also has over further cards, which are on networks of their own,
    without racks. `burst_bytes`: burst that its token bucket admits after a rest. `incast`: share of its rate that remains for each
    doubling of its flows. `queue_s`: longest delay of a receiver's announcement behind queued bytes; 0: announcements overtake.
    """

    name: str
    bit_per_s: float
    beside_bit_per_s: float = 0.0
    burst_bytes: float = 0.0
    incast: float = 1.0
    queue_s: float = 0.0


@dataclass(frozen=True)
class Network:
    """Links, the host of every rank, and the path from each rank to each other one.

    `cards`: a network for each card alone, where all hosts have several cards and no flows between hosts were measured.
    """

    hosts: tuple[int, ...]
    links: tuple[Link, ...]
    path: Callable[[int, int], Path]
    title: str = ""
    cards: tuple[Network, ...] = ()

    @property
    def world(self) -> int:
        """Number of ranks."""
        return len(self.hosts)

    @cached_property
    def native(self) -> _native.Network:
        """The network with a path for every pair."""
        return self.native_for(self.pairs())

    def native_for(self, pairs: Iterable[tuple[int, int]]) -> _native.Network:
        """Return the network with the paths of these pairs, and the paths back if queues delay announcements."""
        wanted = set(pairs)
        if any(link.queue_s for link in self.links):
            wanted |= {(destination, source) for source, destination in wanted}
        routes = [(source, destination, *self.path(source, destination)) for source, destination in wanted]
        return _native.Network(self.hosts, self.links, routes)

    def bit_per_s(self, source: int, destination: int) -> float:
        """Return the rate of the narrowest link from rank to rank."""
        crossed = (self.links[link] for link in self.path(source, destination)[0])
        return min(link.bit_per_s + link.beside_bit_per_s for link in crossed)

    @cached_property
    def slowest_bit_per_s(self) -> float:
        """Rate of the narrowest link between hosts; infinite with one host."""
        return min((self.bit_per_s(*pair) for pair in self.remote_pairs()), default=math.inf)

    @property
    def limits_connections(self) -> bool:
        """True if most paths between hosts have less than half of the rate of their hosts' links and trunks, which one neighbour
        then cannot saturate."""
        first = {host: rank for rank, host in reversed(list(enumerate(self.hosts)))}.values()
        pairs = [(a, b) for a in first for b in first if a != b]
        crossing = Counter(link for pair in pairs for link in self.path(*pair)[0])
        limited = 0
        for pair in pairs:
            shared = [self.links[at].bit_per_s for at in self.path(*pair)[0] if crossing[at] > 1]
            limited += self.bit_per_s(*pair) < SLOW_SHARE * min(shared, default=0.0)
        return 2 * limited > len(pairs)

    @property
    def has_far_hosts(self) -> bool:
        """True if some path between hosts has a long latency."""
        return any(self.path(*pair)[1] >= FAR_S for pair in self.remote_pairs())

    def slowed(self, by: Mapping[int, float]) -> Network:
        """Return the network with links, by index, slower by a factor, alike on each card and on all cards together."""
        links = tuple(
            link._replace(bit_per_s=link.bit_per_s / by[at]) if at in by else link
            for at, link in enumerate(self.links)
        )
        names = {self.links[at].name: factor for at, factor in by.items()}
        cards = (
            card.slowed({at: names[link.name] for at, link in enumerate(card.links) if link.name in names})
            for card in self.cards
        )
        return replace(self, links=links, cards=tuple(cards))

    def pairs(self) -> list[tuple[int, int]]:
        """Return the ordered pairs of different ranks, ascending."""
        ranks = range(self.world)
        return [(source, destination) for source in ranks for destination in ranks if source != destination]

    def remote_pairs(self) -> tuple[tuple[int, int], ...]:
        """Return the ordered pairs of ranks on different hosts, ascending."""
        return tuple(pair for pair in self.pairs() if self.hosts[pair[0]] != self.hosts[pair[1]])

    def slow_pairs(self) -> tuple[tuple[int, int], ...]:
        """Return the ordered pairs of ranks on different hosts whose path is slower than half the fastest such path."""
        rates = {pair: self.bit_per_s(*pair) for pair in self.remote_pairs()}
        fastest = max(rates.values(), default=0.0)
        return tuple(pair for pair, rate in rates.items() if rate < SLOW_SHARE * fastest)


def _relayed(cluster: Cluster, paths: Mapping[tuple[int, int], Path]) -> dict[tuple[int, int], Path]:
    """Paths of pairs of used hosts that reach each other through others only: the links of all hops."""
    at = {host.name: index for index, host in enumerate(cluster.hosts)}
    found: dict[tuple[int, int], Path] = {}
    for way in cluster.relays:
        for hosts in ([at[name] for name in way], [at[name] for name in reversed(way)]):
            hops = list(pairwise(hosts))
            if (hosts[0], hosts[-1]) in paths:
                if not paths.keys() >= set(hops):
                    raise ArtefactError(
                        f"cluster: {way[0]} and {way[-1]} reach each other only through "
                        f"{' and '.join(way[1:-1])}, which has no rank"
                    )
                links = tuple(link for hop in hops for link in paths[hop][0])
                found[hosts[0], hosts[-1]] = links, sum(paths[hop][1] for hop in hops)
    return found


def network(cluster: Cluster, hosts: Sequence[int] | None = None) -> Network:
    """Return the network of ranks on these hosts, by index; by default a rank on each host of the cluster.

    Raises ArtefactError if the cluster contradicts itself.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> both = network(Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab")))
    >>> [both.links[link].name for link in both.path(0, 1)[0]]
    ['a out', 'b in']
    """
    check(cluster)
    placed = tuple(range(len(cluster.hosts)) if hosts is None else hosts)
    used = sorted(set(placed))
    measured = cluster.bandwidth_bit_per_s
    known_s = latency_matrix(cluster)
    goodput = 1.0 if measured else GOODPUT
    uplinks = {rack.name: rack.uplink_bit_per_s for rack in cluster.racks}
    links: list[Link] = []
    paths: dict[tuple[int, int], Path] = {}
    for host in used:
        rate = (measured[host][host] if measured else 0.0) or WITHIN_HOST_BIT_PER_S
        paths[host, host] = ((len(links),), WITHIN_HOST_LATENCY_S)
        links.append(Link(memory_name(cluster.hosts[host].name), rate))
    found: dict[str, int] = {}
    common = cards(cluster, used)
    rates = {at: used_bit_per_s(cluster.hosts[at], common) for at in used}
    beside = [
        min(sum(both(card)[side] for card in cluster.hosts[at].cards_bit_per_s[1:common]) for at in used)
        * goodput
        for side in (OUT, IN)
    ]

    def link(name: str, bit_per_s: float, beside_bit_per_s: float = 0.0) -> int:
        if name not in found:
            found[name] = len(links)
            links.append(Link(name, bit_per_s, beside_bit_per_s))
        return found[name]

    for i, j in ((i, j) for i in used for j in used if i != j):
        source, destination = cluster.hosts[i], cluster.hosts[j]
        crossed = [link(f"{source.name} out", rates[i][OUT] * goodput)]
        if source.rack != destination.rack:
            for rack, side in ((source.rack, OUT), (destination.rack, IN)):
                uplink = uplinks.get(rack)
                if uplink is not None:
                    rate = both(uplink)[side] * goodput
                    crossed.append(link(trunk_name(rack, SIDES[side]), rate, beside[side]))
        crossed.append(link(f"{destination.name} in", rates[j][IN] * goodput))
        if measured:
            crossed.append(link(pair_name(source.name, destination.name), measured[i][j]))
        paths[i, j] = (tuple(crossed), LATENCY_S if known_s is None else known_s[i][j])
    paths |= _relayed(cluster, paths)
    return Network(
        placed, tuple(links), lambda source, destination: paths[placed[source], placed[destination]]
    )


def burst_bytes(bit_per_s: float) -> int:
    """Return the burst that a token bucket of the testbed admits after a rest at that rate."""
    return max(BURST_BYTES_MIN, int(bit_per_s / 8 * BURST_S))


def restricted(cluster: Cluster, hosts: Sequence[int]) -> Cluster:
    """Return the cluster with only these hosts, in this order. Ways through others are left out, too: a job finds new ones."""
    names = {cluster.hosts[host].name for host in hosts}

    def rows(matrix: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(matrix[a][b] for b in hosts) for a in hosts) if matrix else ()

    return msgspec.structs.replace(
        cluster,
        hosts=tuple(cluster.hosts[host] for host in hosts),
        latency_s=rows(cluster.latency_s),
        bandwidth_bit_per_s=rows(cluster.bandwidth_bit_per_s),
        streams=tuple(tuple(cluster.streams[a][b] for b in hosts) for a in hosts) if cluster.streams else (),
        relays=tuple(way for way in cluster.relays if names.issuperset(way)),
    )


def cards(cluster: Cluster, among: Iterable[int] | None = None) -> int:
    """Return the number of cards that every host has, or every host `among` them; 1 if one has a single card."""
    used = range(len(cluster.hosts)) if among is None else among
    return max(1, min(len(cluster.hosts[at].cards_bit_per_s) for at in used))


def used_bit_per_s(host: Host, count: int) -> tuple[float, float]:
    """Return the rates out and in of a host's first `count` cards, which the wire uses: networks that some host lacks are left out.

    >>> host = Host(name="a", bandwidth_bit_per_s=(3e9, 6e9), cards_bit_per_s=(1e9, (2e9, 5e9)))
    >>> used_bit_per_s(host, 1), used_bit_per_s(host, 2)
    ((1000000000.0, 1000000000.0), (3000000000.0, 6000000000.0))
    """
    own = host.cards_bit_per_s
    out, into = both(host.bandwidth_bit_per_s)
    if len(own) <= count:
        return out, into
    part = [
        sum(both(card)[side] for card in own[:count]) / sum(both(card)[side] for card in own)
        for side in (OUT, IN)
    ]
    return out * part[OUT], into * part[IN]


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
    """Return the cluster with rates of hosts' links and trunks raised to at least these, by link name; rates count payload. What
    one direction has carried raises both of a link with one rate.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> one = Cluster(hosts=(Host(name="a", bandwidth_bit_per_s=1e8),))
    >>> round(raised(one, {"a out": 2e8, "a in": 1e7}).hosts[0].bandwidth_bit_per_s / 1e6)
    209
    """
    goodput = 1.0 if cluster.bandwidth_bit_per_s else GOODPUT

    def at_least(given: Directions, *names: str) -> Directions:
        least = [least_bit_per_s.get(name, 0.0) / goodput for name in names]
        if not isinstance(given, tuple):
            return max(given, *least)
        return directions(*map(max, given, least))

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


def memory_name(host: str) -> str:
    """Return the name of the memory that ranks of a host share."""
    return f"memory of {host}"


def pair_name(source: str, destination: str) -> str:
    """Return the name of the measured single path between two hosts."""
    return f"{source} to {destination}"


def trunk_name(rack: str, side: str) -> str:
    """Return the name of a rack's link to the other racks; `side` is `out` or `in`."""
    return f"trunk of {rack} {side}"


def trunk_names(cluster: Cluster) -> set[str]:
    """Return the names of all racks' trunks, both sides."""
    return {trunk_name(rack.name, side) for rack in cluster.racks for side in SIDES}
