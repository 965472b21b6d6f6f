"""A plan for another number of workers: the same buckets and algorithms, with the planner's own rules applied again.

Order, groups and codec links name single ranks. Each is recognised as the outcome of a rule on the plan's own cluster
(ranks as listed, or rack by rack; groups by racks or by hosts; a codec on slow links, or on all between hosts), and the
rule is applied to the new cluster. Anything else, such as an order solved for measured latencies, is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import AllReduce, Bucket, Evidence, Owned, Owner, Plan, Route
from hocket.errors import UsageError
from hocket.planning.buckets import with_codec
from hocket.planning.links import link_graph
from hocket.planning.order import contiguous_order, given_order, level_sizes, placement
from hocket.planning.routes import name
from hocket.policy.algorithms import blocks

HINT = "hint: make a plan for that many with `hocket plan`, and simulate it"


@dataclass(frozen=True)
class _Place:
    """Input of the rules: `hosts[rank]`, and the cluster if it is known."""

    hosts: Sequence[str]
    cluster: Cluster | None

    @property
    def world(self) -> int:
        return len(self.hosts)

    def contiguous(self) -> tuple[int, ...] | None:
        return None if self.cluster is None else contiguous_order(self.cluster, self.world)

    def levels(self) -> tuple[int, ...]:
        return () if self.cluster is None else level_sizes(self.cluster, self.world)

    def host_levels(self) -> tuple[int, ...]:
        sizes = blocks(range(self.world), self.hosts)
        return sizes if sizes is not None and 1 < len(sizes) < self.world else ()


def rescaled(
    plan: Plan, workers: int, cluster: Cluster, *, made_for: Cluster | None, hosts: Sequence[str]
) -> Plan:
    """The plan for the first `workers` slots of `cluster`.

    `made_for` is its own cluster, `hosts[rank]` the host of each of its ranks.

    Raises UsageError: the cluster has too few slots, or a part of the plan is specific to its ranks.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> wide = Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "abcd"))
    >>> from hocket.planning.buckets import buckets, plan_of
    >>> from hocket.artefacts.gradient import Gradient
    >>> made = buckets([[Gradient("w", (8,), "f32")]], AllReduce(algorithm="ring"), (0, 1))
    >>> ring = plan_of(made, 2, label="ring")
    >>> rescaled(ring, 4, wide, made_for=None, hosts=["a", "b"]).buckets[0].order
    (0, 1, 2, 3)
    """
    if plan.workers != tuple(range(plan.world)):
        raise UsageError(f"the plan has ranks that do not compute: nobody knows those of {workers}\n{HINT}")
    fits = made_for is not None and sum(host.slots for host in made_for.hosts) >= plan.world
    old = _Place(hosts, made_for if fits else None)
    new = _Place([cluster.hosts[at].name for at in placement(cluster, workers)], cluster)
    return msgspec.structs.replace(
        plan,
        world=workers,
        workers=tuple(range(workers)),
        buckets=tuple(_bucket(bucket, old, new) for bucket in plan.buckets),
        reason=f"The choices of a plan for {plan.world} ranks.",
        evidence=Evidence(),
    )


def _bucket(bucket: Bucket, old: _Place, new: _Place) -> Bucket:
    order = _order(bucket.order, old, new)
    route = _route(bucket, order, old, new)
    moved = msgspec.structs.replace(bucket, order=order, route=route, codec="none", codec_links=())
    return _with_links(bucket, moved, old, new)


def _order(order: tuple[int, ...], old: _Place, new: _Place) -> tuple[int, ...]:
    # Ranks listed rack by rack stay next to those of their rack on a cluster that lists them otherwise.
    contiguous = new.contiguous()
    if contiguous is not None and order == old.contiguous():
        return contiguous
    if order == given_order(old.world):
        return given_order(new.world)
    raise UsageError(
        f"the plan's order {list(order)} is neither as hosts are listed nor rack by rack: nobody knows that of {new.world}\n{HINT}"
    )


def _route(bucket: Bucket, order: tuple[int, ...], old: _Place, new: _Place) -> Route:
    route = bucket.route
    if isinstance(route, Owned):
        return _owned(bucket, route, order)
    if not isinstance(route, AllReduce):
        raise UsageError(f"a bucket of the plan is `{name(route)}`: nobody knows that of {new.world}\n{HINT}")
    if route.algorithm == "parameter_server" and route.sizes[0] > new.world:
        raise _too_many(route.sizes[0], new.world)
    if route.algorithm != "two_level":
        return route
    sizes = route.sizes
    if sizes == old.levels():
        found = new.levels()
    elif sizes == old.host_levels():
        found = new.host_levels()
    else:
        raise UsageError(
            f"the plan's groups of {', '.join(map(str, sizes))} ranks are neither the racks nor the hosts that it was made for: "
            f"nobody knows those of {new.world}\n{HINT}"
        )
    if not found:
        raise UsageError(
            f"the plan reduces on two levels: {new.world} ranks of the cluster are not in several racks or hosts of several\n{HINT}"
        )
    return AllReduce(algorithm="two_level", sizes=found)


def _owned(bucket: Bucket, route: Owned, order: tuple[int, ...]) -> Owned:
    """The owners at the same places of the new order."""
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
    """`moved` with the codec of `bucket`."""
    codec = bucket.codec
    if codec == "none":
        return moved
    if old.cluster is None or new.cluster is None:
        raise UsageError(
            f"the plan has {codec} on some links, and the cluster that it was made for is not known\n{HINT}"
        )
    was, graph = link_graph(old.cluster, old.world), link_graph(new.cluster, new.world)
    for title, chosen, pairs in (
        ("slow links", was.slow_pairs(), graph.slow_pairs()),
        ("links between hosts", was.remote_pairs(), graph.remote_pairs()),
    ):
        known = with_codec(bucket, codec, chosen).codec_links
        if set(known) != set(bucket.codec_links):
            continue
        found = with_codec(moved, codec, pairs)
        if not found.codec_links:
            raise UsageError(
                f"the plan has {codec} on {title}: {new.world} ranks of the cluster use none\n{HINT}"
            )
        return found
    raise UsageError(
        f"the plan's links with {codec} are neither the slow ones of its cluster nor all between hosts\n{HINT}"
    )
