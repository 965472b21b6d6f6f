"""The fastest orders of ranks for a plan that stays unchanged otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from hocket.artefacts.algorithms import Algorithm
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.network import Network
from hocket.artefacts.plan import AllReduce, Bucket, Plan
from hocket.artefacts.profile import Profile
from hocket.planning.cost import predict
from hocket.planning.links import link_graph
from hocket.planning.order import contiguous_order, fast_first_order, given_order
from hocket.planning.ordering.classes import Order, classes, reordered
from hocket.planning.solved import solved_order


def matters(plan: Plan) -> bool:
    """Return whether another order could cost less.

    >>> from hocket.artefacts.gradient import Gradient
    >>> from hocket.planning.buckets import buckets, plan_of
    >>> ring = [buckets([[Gradient("w", (8,), "f32")]], AllReduce(algorithm="ring"), range(n)) for n in (2, 3)]
    >>> [matters(plan_of(made, world, label="ring")) for made, world in zip(ring, (2, 3))]
    [False, True]
    """
    return any(len(order) > 2 for order in classes(plan))


def in_fastest_orders(plan: Plan, cluster: Cluster, profile: Profile) -> Plan:
    """Return the plan with the orders that are predicted to be fastest, found class by class, and that prediction. UsageError if
    the cluster has too few slots."""
    graph = link_graph(cluster, plan.world)
    found = classes(plan)
    orders = list(found)
    best, best_s = plan, predict(plan, cluster, profile).step_s
    for at, members in enumerate(found.values()):
        for order in _candidates(cluster, graph, members):
            tried = [*orders[:at], order, *orders[at + 1 :]]
            changed = reordered(plan, tried)
            changed_s = predict(changed, cluster, profile).step_s
            if changed_s < best_s:
                best, best_s, orders = changed, changed_s, tried
    return msgspec.structs.replace(
        best, evidence=msgspec.structs.replace(plan.evidence, predicted_step_s=best_s)
    )


def _candidates(cluster: Cluster, graph: Network, members: Sequence[Bucket]) -> Iterator[Order]:
    """Candidate orders for buckets of one order, judged by the largest bucket."""
    route = max(members, key=lambda bucket: bucket.elements).route
    assert isinstance(route, AllReduce)  # noqa: S101  # `classes` has no others
    world = len(graph.hosts)
    simple = [given_order(world), contiguous_order(cluster, world), fast_first_order(cluster, world)]
    yield from dict.fromkeys(simple)
    if cluster.latency_s:
        solved = solved_order(graph, Algorithm(route.algorithm, route.sizes), simple)
        if solved is not None:
            yield solved
