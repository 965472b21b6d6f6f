"""Buckets of a plan whose order of ranks may change, in classes with equal orders."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hocket.artefacts.algorithms import BY_NAME
from hocket.artefacts.plan import AllReduce, Bucket, Plan

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


def _ordered(bucket: Bucket) -> bool:
    return isinstance(bucket.route, AllReduce) and BY_NAME[bucket.route.algorithm].ordered
