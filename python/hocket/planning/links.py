"""The link graph of a job: the links of its cluster on the path from one rank to another, and each one's rate.

The links come from `hocket.artefacts.network`; here ranks are placed on hosts. Algorithms and time are not considered.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

from hocket import _native
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.cluster_check import check
from hocket.artefacts.network import Network, cards, network, of_card, restricted
from hocket.planning.order import placement

SLOW_SHARE = 0.5
"""Fraction of the rate of the fastest path between hosts below which a path is slow."""


@dataclass(frozen=True)
class LinkGraph(Network):
    """A network with a path for each ordered pair of different ranks; `hosts[rank]` is the rank's host.

    `cards`: a graph for each card alone, where all hosts have several cards and no flows between hosts were measured.
    """

    hosts: tuple[int, ...]
    cards: tuple[LinkGraph, ...] = ()

    @cached_property
    def native(self) -> _native.PlanNetwork:
        """The graph for the closed form."""
        ranks = range(len(self.hosts))
        pairs = [(source, destination) for source in ranks for destination in ranks]
        paths = [self.paths.get(pair, ()) for pair in pairs]
        return _native.PlanNetwork(
            hosts=self.hosts,
            bit_per_s=[link.bit_per_s for link in self.links],
            starts=list(accumulate(map(len, paths), initial=0)),
            crossed=[link for path in paths for link in path],
            latency_s=[self.latencies_s.get(pair, 0.0) for pair in pairs],
        )

    @cached_property
    def slowest_bit_per_s(self) -> float:
        """Rate of the narrowest link between hosts; infinite with one host."""
        return min((self.bit_per_s(*pair) for pair in self.remote_pairs()), default=math.inf)

    def slowed(self, by: Mapping[int, float]) -> LinkGraph:
        """Return the graph with links, by index, slower by a factor, alike on each card and on all cards together."""
        links = tuple(
            replace(link, bit_per_s=link.bit_per_s / by[at]) if at in by else link
            for at, link in enumerate(self.links)
        )
        names = {self.links[at].name: factor for at, factor in by.items()}
        cards = (
            card.slowed({at: names[link.name] for at, link in enumerate(card.links) if link.name in names})
            for card in self.cards
        )
        return replace(self, links=links, cards=tuple(cards))

    @property
    def limits_connections(self) -> bool:
        """True if most paths between hosts have less than half of the rate of their hosts' links and trunks, which one neighbour
        then cannot saturate."""
        first = {host: rank for rank, host in reversed(list(enumerate(self.hosts)))}.values()
        pairs = [(a, b) for a in first for b in first if a != b]
        crossing = Counter(link for pair in pairs for link in self.paths[pair])
        limited = 0
        for pair in pairs:
            shared = [self.links[at].bit_per_s for at in self.paths[pair] if crossing[at] > 1]
            limited += self.bit_per_s(*pair) < SLOW_SHARE * min(shared, default=0.0)
        return 2 * limited > len(pairs)

    def slow_pairs(self) -> tuple[tuple[int, int], ...]:
        """Ordered pairs of ranks on different hosts whose path is slower than half the fastest such path."""
        rates = {pair: self.bit_per_s(*pair) for pair in self.remote_pairs()}
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
    check(cluster)
    hosts = placement(cluster, world)
    between = network(cluster, hosts)
    pairs = {
        (source, destination): (hosts[source], hosts[destination])
        for source in range(world)
        for destination in range(world)
        if source != destination
    }
    return LinkGraph(
        hosts=hosts,
        links=between.links,
        paths={ranks: between.paths[pair] for ranks, pair in pairs.items()},
        latencies_s={ranks: between.latencies_s[pair] for ranks, pair in pairs.items()},
        cards=_cards(cluster, world),
    )


def _cards(cluster: Cluster, world: int) -> tuple[LinkGraph, ...]:
    # Ranks fill hosts in their order.
    own = restricted(cluster, range(max(placement(cluster, world)) + 1))
    count = cards(own)
    # A measured flow used all cards.
    if count == 1 or cluster.bandwidth_bit_per_s:
        return ()
    return tuple(link_graph(of_card(own, card), world) for card in range(count))
