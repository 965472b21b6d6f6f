"""Choice of the ranks that update the values: all ranks, or owners alone, which send back values instead of means."""

from __future__ import annotations

import msgspec

from hocket.artefacts.algorithms import BY_NAME
from hocket.artefacts.plan import AllReduce, Bucket, Direct, Owned, Owner, Plan, TwoLevel


def by_owners(plan: Plan) -> Plan:
    """Return the plan in which owners update. All-reduced buckets get owners: every rank, in equal parts, through stations if the
    algorithm has groups. Buckets by policies, by rows, on servers and of helpers, which have no optimizer, stay as they are.

    >>> from hocket.planning.buckets import plan_of
    >>> ring = Bucket(parts=(), elements=8, dtype="f32", route=AllReduce(algorithm="ring"), order=(0, 1), priority=0)
    >>> by_owners(plan_of([ring], 2, label="ring")).buckets[0].route.update
    'owners'
    """
    buckets = tuple(_updated(bucket, plan) for bucket in plan.buckets)
    if buckets == plan.buckets:
        return plan
    return msgspec.structs.replace(plan, buckets=buckets, label=f"{plan.label}, owners update")


def _updated(bucket: Bucket, plan: Plan) -> Bucket:
    route = bucket.route
    if isinstance(route, Owned):
        if not set(bucket.order) <= set(plan.workers):
            return bucket
        return msgspec.structs.replace(bucket, route=msgspec.structs.replace(route, update="owners"))
    if not isinstance(route, AllReduce):
        return bucket
    grouped = BY_NAME[route.algorithm].takes == "sizes"
    owned = Owned(
        owners=tuple(Owner(rank=rank) for rank in plan.workers),
        update="owners",
        via=TwoLevel(stations=route.sizes) if grouped else Direct(),
    )
    rule = msgspec.structs.replace(bucket.rule, owners="all")
    return msgspec.structs.replace(bucket, route=owned, rule=rule)
