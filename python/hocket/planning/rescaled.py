"""A plan for other hosts, or another number of workers: the same buckets and algorithms, with the planner's rules applied again.

Order, groups, owners and codec links name single ranks. The plan names the rule behind each (`Rule`). If not, the rule is
recognised by its outcome on the plan's own cluster, if that is known (ranks as listed, or rack by rack; groups by racks or by
hosts; a codec on slow links, or on all between hosts). The rule is applied to the new cluster. Choices without a rule, or with one
that has no meaning there, are refused by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import (
    AllReduce,
    Bucket,
    Evidence,
    Gathered,
    LinksRule,
    OrderRule,
    Owned,
    Owner,
    Plan,
    Route,
    Traced,
)
from hocket.errors import UsageError
from hocket.planning import rows
from hocket.planning.buckets import with_codec
from hocket.planning.links import link_graph
from hocket.planning.order import (
    contiguous_order,
    fast_first_order,
    given_order,
    level_sizes,
    placement,
    rack_blocks,
)
from hocket.planning.owners import collecting_by_rates, owners_by, trees_by_links
from hocket.planning.routes import name
from hocket.planning.solved import solved_orders
from hocket.policy.algorithms import blocks

HINT = "hint: make a plan for that many with `hocket plan`, and simulate it"

BY_NETWORK = {"collect_spread": collecting_by_rates, "trees": trees_by_links}
"""Functions that make the route of a cluster and an order anew, by algorithm."""


@dataclass(frozen=True)
class _Place:
    """Input of the rules: number of ranks, `hosts[rank]` and the cluster, if known."""

    world: int
    hosts: Sequence[str]
    cluster: Cluster | None

    def order(self, rule: OrderRule) -> tuple[int, ...] | None:
        """Apply a rule; None if the cluster is unknown, or the order was searched for."""
        if rule == "given":
            return given_order(self.world)
        if self.cluster is None or rule in ("solved", "searched"):
            return None
        return (contiguous_order if rule == "rack by rack" else fast_first_order)(self.cluster, self.world)

    def levels(self) -> tuple[int, ...]:
        return () if self.cluster is None else level_sizes(self.cluster, self.world)

    def rack_levels(self) -> tuple[int, ...]:
        several = self.cluster is not None and len(rack_blocks(self.cluster, self.world)) > 1
        return self.levels() if several else ()

    def host_levels(self) -> tuple[int, ...]:
        sizes = blocks(range(self.world), self.hosts)
        return sizes if sizes is not None and 1 < len(sizes) < self.world else ()


def rescaled(
    plan: Plan,
    workers: int,
    cluster: Cluster,
    *,
    made_for: Cluster | None = None,
    hosts: Sequence[str] | None = None,
) -> Plan:
    """The plan for the first `workers` slots of `cluster`.

    `made_for` is the plan's own cluster, `hosts[rank]` the host of each of its ranks, if known.

    Raises UsageError if the cluster has too few slots, or if a part of the plan is specific to its ranks.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> wide = Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abcd"))
    >>> from hocket.planning.buckets import buckets, plan_of
    >>> from hocket.artefacts.gradient import Gradient
    >>> made = buckets([[Gradient("w", (8,), "f32")]], AllReduce(algorithm="ring"), (0, 1))
    >>> ring = plan_of(made, 2, label="ring")
    >>> rescaled(ring, 4, wide).buckets[0].order
    (0, 1, 2, 3)
    """
    if plan.workers != tuple(range(plan.world)):
        raise UsageError(f"the plan has ranks that do not compute: nobody knows those of {workers}\n{HINT}")
    fits = made_for is not None and sum(host.slots for host in made_for.hosts) >= plan.world
    old = _Place(plan.world, hosts or (), made_for if fits else None)
    places = [cluster.hosts[at].name for at in placement(cluster, workers)]
    new = _Place(workers, places, cluster)
    return msgspec.structs.replace(
        plan,
        world=workers,
        workers=tuple(range(workers)),
        buckets=tuple(_bucket(bucket, old, new) for bucket in plan.buckets),
        reason=f"The choices of a plan for {plan.world} ranks.",
        evidence=Evidence(),
    )


def _bucket(bucket: Bucket, old: _Place, new: _Place) -> Bucket:
    order = _order(bucket, old, new)
    route = _route(bucket, order, old, new)
    moved = msgspec.structs.replace(bucket, order=order, route=route, codec="none", codec_links=())
    return _with_links(bucket, moved, old, new)


def _order(bucket: Bucket, old: _Place, new: _Place) -> tuple[int, ...]:
    rule = _order_rule(bucket, old)
    if rule == "searched":
        raise UsageError(
            f"the plan's order {list(bucket.order)} was searched for on the links of its own cluster: nobody knows that of "
            f"{new.world}\n{HINT}"
        )
    if rule is None:
        raise UsageError(
            f"the plan's order {list(bucket.order)} is neither as hosts are listed nor rack by rack: nobody knows that of "
            f"{new.world}\n{HINT}"
        )
    order = _solved(bucket, new) if rule == "solved" else new.order(rule)
    assert order is not None  # noqa: S101  # the new cluster is known
    return order


def _order_rule(bucket: Bucket, old: _Place) -> OrderRule | None:
    """Rule behind the order: the plan's own, unless the plan's cluster contradicts it."""
    # If this cluster lists ranks rack by rack, ranks of a rack also stay adjacent on one that does not.
    if old.order("rack by rack") == bucket.order:
        return "rack by rack"
    said = bucket.rule.order
    if said is not None and old.order(said) in (None, bucket.order):
        return said
    return "given" if old.order("given") == bucket.order else None


def _solved(bucket: Bucket, new: _Place) -> tuple[int, ...]:
    """Repeat the search for an order on the new cluster; a simpler order if none faster is found."""
    cluster, route = new.cluster, bucket.route
    if cluster is None or not cluster.latency_s or not isinstance(route, AllReduce | Gathered):
        raise UsageError(
            f"the plan's order {list(bucket.order)} is `solved` for measured latencies, which the cluster does not have\n"
            "hint: `hocket probe` measures them"
        )
    simpler = given_order(new.world), contiguous_order(cluster, new.world)
    found = solved_orders(cluster, link_graph(cluster, new.world), frozenset({route.algorithm}), simpler)
    return next((order for _, order in found), simpler[1])


def _route(bucket: Bucket, order: tuple[int, ...], old: _Place, new: _Place) -> Route:
    route = bucket.route
    if isinstance(route, Owned):
        return _owned(bucket, route, order, new)
    if isinstance(route, Gathered):
        return msgspec.structs.replace(route, rows=rows.most(bucket, old.world, new.world))
    if isinstance(route, Traced):
        # A policy looks at the ranks and at the network where it is traced.
        return route
    if not isinstance(route, AllReduce):
        raise UsageError(f"a bucket of the plan is `{name(route)}`: nobody knows that of {new.world}\n{HINT}")
    if route.algorithm == "parameter_server" and route.sizes[0] > new.world:
        raise _too_many(route.sizes[0], new.world)
    if route.algorithm in BY_NETWORK:
        assert new.cluster is not None  # noqa: S101  # the new cluster is known
        return BY_NETWORK[route.algorithm](new.cluster, order)
    if route.algorithm != "two_level":
        return route
    sizes, groups = route.sizes, bucket.rule.groups
    if groups == "racks":
        found = new.rack_levels()
    elif groups == "hosts" or sizes == old.host_levels() != old.levels():
        found = new.host_levels()
    elif sizes == old.levels():
        found = new.levels()
    else:
        raise UsageError(
            f"the plan's groups of {', '.join(map(str, sizes))} ranks are neither the racks nor the hosts that it was made for: "
            f"nobody knows those of {new.world}\n{HINT}"
        )
    if not found:
        where = f"by `{groups}`" if groups else "on two levels"
        raise UsageError(
            f"the plan reduces {where}: {new.world} ranks of the cluster are not in several racks or hosts of several\n{HINT}"
        )
    return AllReduce(algorithm="two_level", sizes=found)


def _owned(bucket: Bucket, route: Owned, order: tuple[int, ...], new: _Place) -> Owned:
    """Owners by the same rule; without a rule, or if it names single ranks, the ranks at the same places of the new order."""
    rule = bucket.rule.owners
    if rule is not None and rule != "one":
        assert new.cluster is not None  # noqa: S101  # the new cluster is known
        return owners_by(rule, route, len(bucket.order), new.cluster, new.world)
    places = [bucket.order.index(owner.rank) for owner in route.owners]
    if max(places) >= len(order):
        raise _too_many(len(places), len(order))
    owners = zip(route.owners, places, strict=True)
    return msgspec.structs.replace(
        route, owners=tuple(Owner(rank=order[place], share=owner.share) for owner, place in owners)
    )


def _too_many(owners: int, world: int) -> UsageError:
    return UsageError(f"in the plan {owners} ranks own the parts of a bucket: there are {world}\n{HINT}")


def _with_links(bucket: Bucket, moved: Bucket, old: _Place, new: _Place) -> Bucket:
    """Return `moved` with the codec of `bucket`."""
    codec = bucket.codec
    if codec == "none":
        return moved
    rule = bucket.rule.links or _links_rule(bucket, old)
    assert new.cluster is not None  # noqa: S101  # the new cluster is known
    graph = link_graph(new.cluster, new.world)
    found = with_codec(moved, codec, graph.slow_pairs() if rule == "slow links" else graph.remote_pairs())
    if not found.codec_links:
        raise UsageError(f"the plan has {codec} on {rule}: {new.world} ranks of the cluster use none\n{HINT}")
    return found


def _links_rule(bucket: Bucket, old: _Place) -> LinksRule:
    """Recognise the rule of codec links on the plan's own cluster."""
    if old.cluster is None:
        raise UsageError(
            f"the plan has {bucket.codec} on some links, and the cluster that it was made for is not known\n{HINT}"
        )
    graph = link_graph(old.cluster, old.world)
    pairs: dict[LinksRule, tuple[tuple[int, int], ...]] = {
        "slow links": graph.slow_pairs(),
        "links between hosts": graph.remote_pairs(),
    }
    for rule, chosen in pairs.items():
        if set(with_codec(bucket, bucket.codec, chosen).codec_links) == set(bucket.codec_links):
            return rule
    raise UsageError(
        f"the plan's links with {bucket.codec} are neither the slow ones of its cluster nor all between hosts\n{HINT}"
    )
