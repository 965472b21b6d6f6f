"""Buckets of a plan whose order of ranks may change, in classes with equal orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from hocket.artefacts.algorithms import BY_NAME
from hocket.artefacts.plan import AllReduce, Bucket, Plan, Schedule, Served

Order = tuple[int, ...]


def classes(plan: Plan) -> dict[Order, list[Bucket]]:
    """Buckets by order, for algorithms to which the order matters.

    >>> from hocket.artefacts.gradient import Gradient
    >>> from hocket.planning.buckets import buckets, plan_of
    >>> made = buckets([[Gradient("w", (8,), "f32")]], AllReduce(algorithm="ring"), (1, 0))
    >>> list(classes(plan_of(made, 2, label="ring")))
    [(1, 0)]
    """
    found: dict[Order, list[Bucket]] = {}
    for bucket in plan.buckets:
        if _ordered(bucket):
            found.setdefault(bucket.order, []).append(bucket)
    return found


def reordered(plan: Plan, orders: Sequence[Order]) -> Plan:
    """The plan with these orders in place of its classes' orders."""
    now = dict(zip(classes(plan), orders, strict=True))
    return msgspec.structs.replace(
        plan,
        buckets=tuple(
            msgspec.structs.replace(bucket, order=now[bucket.order]) if _ordered(bucket) else bucket
            for bucket in plan.buckets
        ),
    )


def among_workers(plan: Plan) -> Plan:
    """The plan's buckets among the ranks that train; the plan itself if all ranks do. What goes over others has no order.

    >>> from hocket.artefacts.gradient import Gradient
    >>> from hocket.planning.buckets import buckets, plan_of
    >>> made = [buckets([[Gradient("w", (8,), "f32")]], AllReduce(algorithm="ring"), order)[0] for order in ((1, 0), (1, 0, 2))]
    >>> helped = msgspec.structs.replace(plan_of(made, 3, label="helped"), workers=(0, 1))
    >>> own = among_workers(helped)
    >>> own.world, [bucket.order for bucket in own.buckets]
    (2, [(1, 0)])
    """
    workers = len(plan.workers)
    if workers == plan.world:
        return plan
    own = [
        bucket
        for bucket in plan.buckets
        if not isinstance(bucket.route, Served) and max(bucket.order, default=0) < workers
    ]
    return msgspec.structs.replace(plan, world=workers, buckets=tuple(own), schedule=Schedule(), safer=())


def with_orders_of(plan: Plan, own: Plan) -> Plan:
    """The plan with the orders, and the prediction, of `own`, which was made of `among_workers(plan)`."""
    changed = reordered(plan, [*_orders(among_workers(plan), own)])
    return msgspec.structs.replace(changed, evidence=own.evidence)


def _orders(before: Plan, after: Plan) -> Iterator[Order]:
    """Order of each class of `before`, in which a bucket stands at the same place in `after`."""
    first = {bucket.order: at for at, bucket in reversed([*enumerate(before.buckets)]) if _ordered(bucket)}
    for order in classes(before):
        yield after.buckets[first[order]].order


def _ordered(bucket: Bucket) -> bool:
    return isinstance(bucket.route, AllReduce) and BY_NAME[bucket.route.algorithm].ordered
