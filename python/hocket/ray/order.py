"""Order of hosts in which a ring over their links takes least time. Loads no Ray."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hocket.artefacts.algorithms import Algorithm
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.network import restricted
from hocket.planning.default import of_job
from hocket.planning.order import contiguous_order, given_order
from hocket.planning.ordering.cluster import of_cluster
from hocket.planning.ordering.solve import costs_s, own, solve
from hocket.planning.reason import seconds
from hocket.planning.solved import EFFORT, RESTARTS, SIZE_BYTES, WORTH
from hocket.training.autopilot.knowledge import described

RING = Algorithm("ring")


@dataclass(frozen=True, kw_only=True)
class RankOrder:
    """Hosts of a job's ranks, and the reason for their order.

    Attributes:
        hosts: names, by rank.
        reason: reason for this order of hosts, a sentence.
        cluster: cluster that was measured, or read from `HOCKET_CLUSTER`; None: neither, and hosts are in the order of addresses.
    """

    hosts: tuple[str, ...]
    reason: str
    cluster: Cluster | None = None


def in_a_ring(cluster: Cluster, hosts: Sequence[str], worth: float = WORTH) -> tuple[tuple[str, ...], str]:
    """Return these hosts of the cluster in the order in which a ring takes least time, and the reason. The first one stays first.

    An order must take less than `worth` times the given one's time, and any but rack by rack less than `worth` times that, too.
    Otherwise measurements of one network, which differ, would give other orders. UsageError: the cluster lacks a host.

    >>> from hocket.artefacts.cluster import Host, Rack
    >>> places = tuple(Host(name=f"h{at}", rack="ab"[at % 2], bandwidth_bit_per_s=1e9) for at in range(4))
    >>> racks = tuple(Rack(name=name, uplink_bit_per_s=1e9) for name in "ab")
    >>> in_a_ring(Cluster(hosts=places, racks=racks), ["h0", "h1", "h2", "h3"])[0]
    ('h0', 'h2', 'h1', 'h3')
    """
    placed, ranks = of_job(cluster, hosts)
    here = restricted(placed, [ranks.index(at) for at in range(len(hosts))])
    matrix, request = of_cluster(here), own(RING, SIZE_BYTES, effort=EFFORT, restarts=RESTARTS)
    searched = solve(matrix, request).order
    first = searched.index(0)
    given = given_order(len(hosts))
    orders = [given, contiguous_order(here, len(hosts)), searched[first:] + searched[:first]]
    given_s, *others_s = costs_s(matrix, request, orders)
    best, best_s = given, given_s
    for order, order_s in zip(orders[1:], others_s, strict=True):
        if order_s < worth * best_s:
            best, best_s = order, order_s
    what = f"a ring of {SIZE_BYTES >> 20} MiB takes"
    if best == given:
        why = f"in the order of addresses, {what} {seconds(given_s)}, and in no other clearly less"
    else:
        why = f"{what} {seconds(best_s)} in this order, and {seconds(given_s)} in that of addresses"
    return tuple(hosts[at] for at in best), f"{described(here)}: {why}"
