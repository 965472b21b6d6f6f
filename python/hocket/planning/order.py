"""Placement of ranks on hosts, and the order in which algorithms visit them.

An order is `order[logical] = physical rank`. Both orders here are pure functions of the cluster and the world size;
`hocket.planning.cost` predicts the cost of an order.
"""

from __future__ import annotations

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.network import cards, used_bit_per_s
from hocket.errors import UsageError


def placement(cluster: Cluster, world: int) -> tuple[int, ...]:
    """Index of the host of every rank: ranks fill `slots` in host order.

    Raises UsageError when the cluster has no slot for a rank.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> host = lambda name, slots: Host(name=name, slots=slots, bandwidth_bit_per_s=1e9)
    >>> placement(Cluster(hosts=(host("a", 2), host("b", 1))), 3)
    (0, 0, 1)
    """
    if world < 1:
        raise UsageError(f"world of {world} ranks: a job has at least one")
    slots = [index for index, host in enumerate(cluster.hosts) for _ in range(host.slots)]
    if world > len(slots):
        raise UsageError(
            f"world of {world} ranks: the cluster's {len(cluster.hosts)} hosts have {len(slots)} slots\n"
            "hint: raise `slots` of a host, add hosts, or start fewer ranks"
        )
    return tuple(slots[:world])


def given_order(world: int) -> tuple[int, ...]:
    """Ranks in the order of the user's list of hosts.

    >>> given_order(3)
    (0, 1, 2)
    """
    return tuple(range(world))


def contiguous_order(cluster: Cluster, world: int) -> tuple[int, ...]:
    """Ranks of one rack adjacent, and within it ranks of one host; racks in order of first appearance.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> racks = ["left", "right", "left", "right"]
    >>> hosts = tuple(Host(name=f"h{i}", rack=rack, bandwidth_bit_per_s=1e9) for i, rack in enumerate(racks))
    >>> contiguous_order(Cluster(hosts=hosts), 4)
    (0, 2, 1, 3)
    """
    return tuple(rank for block in rack_blocks(cluster, world) for rank in block)


def fast_first_order(cluster: Cluster, world: int) -> tuple[int, ...]:
    """Ranks of the fastest hosts first, judged by the slower direction, so that they are the owners; equally fast ones in the
    contiguous order.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> hosts = tuple(Host(name=f"h{i}", bandwidth_bit_per_s=rate) for i, rate in enumerate([1e8, 1e9, 1e9]))
    >>> fast_first_order(Cluster(hosts=hosts), 3)
    (1, 2, 0)
    """
    rates = rates_bit_per_s(cluster, world)
    return tuple(sorted(contiguous_order(cluster, world), key=lambda rank: -min(rates[rank])))


def rates_bit_per_s(cluster: Cluster, world: int) -> tuple[tuple[float, float], ...]:
    """Rates out and in of the cards that the job uses on each rank's host, by rank.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> two = Host(name="a", bandwidth_bit_per_s=2e9, cards_bit_per_s=(1e9, 1e9))
    >>> rates_bit_per_s(Cluster(hosts=(two, Host(name="b", bandwidth_bit_per_s=1e9))), 2)
    ((1000000000.0, 1000000000.0), (1000000000.0, 1000000000.0))
    """
    places = placement(cluster, world)
    common = cards(cluster, places)
    return tuple(used_bit_per_s(cluster.hosts[at], common) for at in places)


def rack_blocks(cluster: Cluster, world: int) -> tuple[tuple[int, ...], ...]:
    """Ranks of each rack, racks in order of first appearance.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> racks = ["left", "right", "left"]
    >>> hosts = tuple(Host(name=f"h{i}", rack=rack, bandwidth_bit_per_s=1e9) for i, rack in enumerate(racks))
    >>> rack_blocks(Cluster(hosts=hosts), 3)
    ((0, 2), (1,))
    """
    blocks: dict[str, list[int]] = {}
    for rank, host in enumerate(placement(cluster, world)):
        blocks.setdefault(cluster.hosts[host].rack, []).append(rank)
    return tuple(tuple(block) for block in blocks.values())


def level_sizes(cluster: Cluster, world: int) -> tuple[int, ...]:
    """Group sizes of two levels in the contiguous order: racks or, with one rack, hosts; empty without two levels.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> host = lambda name: Host(name=name, slots=2, bandwidth_bit_per_s=1e9)
    >>> level_sizes(Cluster(hosts=(host("a"), host("b"))), 3)
    (2, 1)
    """
    blocks = rack_blocks(cluster, world)
    if len(blocks) == 1:
        blocks = host_blocks(cluster, world)
    return tuple(len(block) for block in blocks) if 1 < len(blocks) < world else ()


def host_blocks(cluster: Cluster, world: int) -> tuple[tuple[int, ...], ...]:
    """Ranks of each host, in the given order.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> host_blocks(Cluster(hosts=(Host(name="a", slots=2, bandwidth_bit_per_s=1e9),)), 2)
    ((0, 1),)
    """
    blocks: dict[int, list[int]] = {}
    for rank, host in enumerate(placement(cluster, world)):
        blocks.setdefault(host, []).append(rank)
    return tuple(tuple(block) for block in blocks.values())
