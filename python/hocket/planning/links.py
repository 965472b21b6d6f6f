"""The network of a job, whose ranks are placed on the hosts of a cluster."""

from __future__ import annotations

from dataclasses import replace

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.cluster_check import check
from hocket.artefacts.network import Network, cards, network, of_card, restricted
from hocket.planning.order import placement


def link_graph(cluster: Cluster, world: int) -> Network:
    """The links between the ranks of a job.

    Raises ArtefactError when the cluster contradicts itself, UsageError when it has too few slots.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> hosts = tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab")
    >>> graph = link_graph(Cluster(hosts=hosts), 2)
    >>> [graph.links[link].name for link in graph.path(0, 1)[0]]
    ['a out', 'b in']
    """
    check(cluster)
    return replace(network(cluster, placement(cluster, world)), cards=_cards(cluster, world))


def _cards(cluster: Cluster, world: int) -> tuple[Network, ...]:
    # Ranks fill hosts in their order.
    own = restricted(cluster, range(max(placement(cluster, world)) + 1))
    count = cards(own)
    # A measured flow used all cards.
    if count == 1 or cluster.bandwidth_bit_per_s:
        return ()
    return tuple(link_graph(of_card(own, card), world) for card in range(count))
