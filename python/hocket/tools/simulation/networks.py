"""Networks for simulated jobs: links, and the links on the route from one rank to another.

Routes are computed pair by pair, so that ten thousand ranks do not need a hundred million routes. In every shape, ranks fill its
hosts in order; ranks of one host share its memory. This module knows nothing of programs or time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.network import (
    LATENCY_S,
    QUEUE_MS,
    WITHIN_HOST_BIT_PER_S,
    WITHIN_HOST_LATENCY_S,
    Link,
    Network,
    Path,
    burst_bytes,
    memory_name,
    trunk_names,
)
from hocket.errors import UsageError
from hocket.planning.links import link_graph

QUEUE_S = QUEUE_MS / 1000
"""Delay of announcements behind a host's full link: the testbed's limit. On other networks it is unknown; buffers of
tens of milliseconds are common (Gettys and Nichols 2011, "Bufferbloat").

A trunk delays no announcements: the rest of its messages is mostly still with their many senders, and TRUNK_INCAST has
the cost of its own queue. With both, direct exchanges over three racks were predicted 13 to 19 % too slow."""

TRUNK_INCAST = 0.97
"""Share of a trunk's rate that remains under TCP for each doubling of its flows: fitted to two clusters of two racks,
tested on others
(`python -m benches predict --fit`, docs/results.md)."""


def from_cluster(
    cluster: Cluster, world: int, *, shaped: bool = False, trunk_incast: float = TRUNK_INCAST
) -> Network:
    """Hosts with their links, racks with their trunks, and measured paths, as for planners; and queues besides.

    `shaped`: links are those of the testbed, whose token buckets admit a burst after a rest.

    Raises ArtefactError when the cluster contradicts itself, UsageError when it has too few slots.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab")
    >>> from_cluster(Cluster(hosts=hosts), 2).path(0, 1)
    ((2, 3), 0.0001)
    """
    graph = link_graph(cluster, world)
    trunks = trunk_names(cluster)
    memory = {memory_name(host.name) for host in cluster.hosts}

    def simulated(link: Link) -> Link:
        if link.name in memory:
            return link
        return link._replace(
            burst_bytes=float(burst_bytes(link.bit_per_s)) if shaped else 0.0,
            incast=trunk_incast if link.name in trunks else 1.0,
            queue_s=0.0 if link.name in trunks else QUEUE_S,
        )

    title = f"{len(set(graph.hosts))} hosts of the cluster"
    cards = (replace(card, links=tuple(map(simulated, card.links))) for card in graph.cards)
    return replace(graph, title=title, links=tuple(map(simulated, graph.links)), cards=tuple(cards))


def star(
    hosts: int, *, bit_per_s: float, latency_s: float = LATENCY_S, ranks_per_host: int = 1, nics: int = 1
) -> Network:
    """Hosts at one switch that is never the bottleneck.

    With several NICs, one switch each: a rank uses the NIC of its position.

    >>> net = star(2, bit_per_s=1e9)
    >>> [net.links[link].name for link in net.path(0, 1)[0]]
    ['host 0 nic 0 out', 'host 1 nic 0 in']
    """
    _positive(hosts=hosts, ranks_per_host=ranks_per_host, nics=nics)
    wires = _Wires()
    for host in range(hosts):
        for nic in range(nics):
            wires.pair(f"host {host} nic {nic}", bit_per_s)

    def between(source: int, destination: int, rank: int, peer: int) -> tuple[int, ...]:
        out, into = rank % ranks_per_host % nics, peer % ranks_per_host % nics
        return (2 * (source * nics + out), 2 * (destination * nics + into) + 1)

    title = f"star of {hosts} hosts" + (f" with {nics} NICs" if nics > 1 else "")
    return wires.network(title, hosts, ranks_per_host, latency_s, between)


def leaf_spine(
    leaves: int,
    hosts_per_leaf: int,
    *,
    bit_per_s: float,
    oversubscription: float = 1.0,
    spines: int = 1,
    latency_s: float = LATENCY_S,
    ranks_per_host: int = 1,
) -> Network:
    """Leaf switches with an uplink to each spine; a leaf's uplinks together carry its hosts' rates over `oversubscription`.

    A pair of hosts always takes the same spine, hashed from both numbers as ECMP hashes addresses.
    """
    _positive(leaves=leaves, hosts_per_leaf=hosts_per_leaf, spines=spines, ranks_per_host=ranks_per_host)
    if not oversubscription > 0:
        raise UsageError(f"oversubscription of {oversubscription}: it must be above 0")
    hosts = leaves * hosts_per_leaf
    wires = _Wires()
    for host in range(hosts):
        wires.pair(f"host {host}", bit_per_s)
    uplink = hosts_per_leaf * bit_per_s / oversubscription / spines
    for leaf in range(leaves):
        for spine in range(spines):
            wires.pair(f"leaf {leaf} spine {spine}", uplink)

    def between(source: int, destination: int, _rank: int, _peer: int) -> tuple[int, ...]:
        left, right = source // hosts_per_leaf, destination // hosts_per_leaf
        ends = (2 * source, 2 * destination + 1)
        if left == right:
            return ends
        spine = _mixed(source, destination) % spines
        up = 2 * (hosts + left * spines + spine)
        down = 2 * (hosts + right * spines + spine) + 1
        return (ends[0], up, down, ends[1])

    title = f"leaf-spine of {leaves} x {hosts_per_leaf} hosts, {oversubscription:g}:1"
    return wires.network(title, hosts, ranks_per_host, latency_s, between)


def fat_tree(
    ports: int, *, bit_per_s: float, latency_s: float = LATENCY_S, ranks_per_host: int = 1
) -> Network:
    """Fat tree of switches with that many ports (Al-Fares et al. 2008): ports³/4 hosts; the way up is hashed from the pair."""
    if ports < 2 or ports % 2:
        raise UsageError(f"a fat tree of switches with {ports} ports: it takes an even number")
    half = ports // 2
    hosts, edges = ports * half * half, ports * half
    wires = _Wires()
    for host in range(hosts):
        wires.pair(f"host {host}", bit_per_s)
    for edge in range(edges):
        for up in range(half):
            wires.pair(f"edge {edge} up {up}", bit_per_s)
    for aggregation in range(edges):
        for up in range(half):
            wires.pair(f"aggregation {aggregation} up {up}", bit_per_s)

    def between(source: int, destination: int, _rank: int, _peer: int) -> tuple[int, ...]:
        left, right = source // half, destination // half
        out, into = 2 * source, 2 * destination + 1
        if left == right:
            return (out, into)
        drawn = _mixed(source, destination)
        middle, top = drawn % half, drawn // half % half
        first, last = 2 * (hosts + left * half + middle), 2 * (hosts + right * half + middle) + 1
        if left // half == right // half:
            return (out, first, last, into)
        base = hosts + edges * half
        up = 2 * (base + (left // half * half + middle) * half + top)
        down = 2 * (base + (right // half * half + middle) * half + top) + 1
        return (out, first, up, down, last, into)

    return wires.network(f"fat tree of {ports}-port switches", hosts, ranks_per_host, latency_s, between)


def torus(
    extents: Sequence[int], *, bit_per_s: float, latency_s: float = LATENCY_S, ranks_per_host: int = 1
) -> Network:
    """Hosts in a grid with wrap-around; routes go dimension by dimension, the shorter way around.

    `latency_s` is the latency of one hop.
    """
    _positive(ranks_per_host=ranks_per_host, **{f"extent_{at}": extent for at, extent in enumerate(extents)})
    hosts = 1
    strides = []
    for extent in extents:
        strides.append(hosts)
        hosts *= extent
    wires = _Wires()
    for host in range(hosts):
        for dimension in range(len(extents)):
            wires.pair(f"host {host} dimension {dimension}", bit_per_s)

    def between(source: int, destination: int, _rank: int, _peer: int) -> tuple[int, ...]:
        path = []
        at = source
        for dimension, (extent, stride) in enumerate(zip(extents, strides, strict=True)):
            ahead = (destination // stride - at // stride) % extent
            forward = ahead <= extent - ahead
            for _ in range(ahead if forward else extent - ahead):
                path.append(2 * (at * len(extents) + dimension) + (0 if forward else 1))
                place = at // stride % extent
                at += ((place + (1 if forward else -1)) % extent - place) * stride
        return tuple(path)

    title = "torus of " + " x ".join(map(str, extents)) + " hosts"
    return wires.network(title, hosts, ranks_per_host, latency_s, between, per_hop=True)


class _Wires:
    """Links under construction; both directions of a wire are adjacent: out at 2i, in at 2i + 1."""

    def __init__(self) -> None:
        self.links: list[Link] = []

    def pair(self, name: str, bit_per_s: float) -> None:
        if not 0 < bit_per_s < float("inf"):
            raise UsageError(f"{name}: {bit_per_s} bit/s: it must be above 0 and finite")
        self.links += [Link(f"{name} out", bit_per_s), Link(f"{name} in", bit_per_s)]

    def network(
        self,
        title: str,
        hosts: int,
        ranks_per_host: int,
        latency_s: float,
        between: Callable[[int, int, int, int], tuple[int, ...]],
        *,
        per_hop: bool = False,
    ) -> Network:
        first_memory = len(self.links)
        memory = [Link(memory_name(f"host {host}"), WITHIN_HOST_BIT_PER_S) for host in range(hosts)]

        def path(rank: int, peer: int) -> Path:
            source, destination = rank // ranks_per_host, peer // ranks_per_host
            if source == destination:
                return (first_memory + source,), WITHIN_HOST_LATENCY_S
            links = between(source, destination, rank, peer)
            return links, latency_s * (len(links) if per_hop else 1)

        placed = tuple(host for host in range(hosts) for _ in range(ranks_per_host))
        return Network(title=title, hosts=placed, links=(*self.links, *memory), path=path)


def _mixed(source: int, destination: int) -> int:
    """Return a number that differs between pairs without a pattern."""
    mixed = (source * 0x9E3779B1 ^ destination * 0x85EBCA77) & 0xFFFFFFFF
    return (mixed ^ mixed >> 15) * 0x2C1B3C6D >> 8 & 0xFFFFFF


def _positive(**counts: int) -> None:
    for name, count in counts.items():
        if count < 1:
            raise UsageError(f"{name} of {count}: it must be at least 1")
