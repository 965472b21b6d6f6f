"""Plans of version 1 as strategies, and strategies that jobs run today as plans of version 1."""

from __future__ import annotations

from collections import Counter

from hocket.artefacts import plan as first
from hocket.artefacts.strategy import (
    AllReduce,
    Bucket,
    Direct,
    Evidence,
    Owned,
    Part,
    Schedule,
    Strategy,
)
from hocket.errors import UsageError

HINT = "hint: `hocket plan` makes plans that jobs run"


def upgraded(plan: first.Plan) -> Strategy:
    """A plan of version 1: whole variables, one order for all buckets, nothing delayed. Nobody knows its rules.

    >>> upgraded(first.Plan(world=2, order=(0, 1), buckets=(), label="ring", reason="", predicted_step_s=0.0)).workers
    (0, 1)
    """
    rounds = any(bucket.synchroniser.codec != "none" for bucket in plan.buckets)
    return Strategy(
        world=plan.world,
        workers=tuple(range(plan.world)),
        buckets=tuple(
            Bucket(
                parts=tuple(Part(variable=name) for name in bucket.gradients),
                elements=bucket.elements,
                dtype=bucket.dtype,
                route=AllReduce(algorithm=bucket.synchroniser.algorithm, sizes=bucket.synchroniser.sizes),
                order=plan.order,
                priority=bucket.priority,
                codec=bucket.synchroniser.codec,
                codec_links=bucket.synchroniser.codec_links,
                chunk_bytes=bucket.synchroniser.chunk_bytes,
            )
            for bucket in plan.buckets
        ),
        promise="rounded" if rounds else "exact",
        evidence=Evidence(predicted_step_s=plan.predicted_step_s or None, candidates=plan.candidates),
        label=plan.label,
        reason=plan.reason,
    )


def executable(strategy: Strategy) -> first.Plan:
    """The plan of version 1 that does the same. Raises UsageError with what no session of plans does.

    >>> plan = first.Plan(world=2, order=(1, 0), buckets=(), label="", reason="", predicted_step_s=0.5)
    >>> executable(upgraded(plan)).world
    2
    """
    if strategy.workers != tuple(range(strategy.world)):
        raise UsageError(f"plan: ranks that do not compute are not run by plans\n{HINT}")
    if strategy.schedule != Schedule():
        raise UsageError(
            f"plan: a schedule other than every gradient in its own iteration is not run\n{HINT}"
        )
    orders = {bucket.order for bucket in strategy.buckets}
    if len(orders) > 1:
        raise UsageError(f"plan: buckets have {len(orders)} orders, and one is run\n{HINT}")
    times = Counter(part.variable for bucket in strategy.buckets for part in bucket.parts)
    split = {
        part.variable
        for bucket in strategy.buckets
        for part in bucket.parts
        if part.start or times[part.variable] > 1
    }
    return first.Plan(
        world=strategy.world,
        order=orders.pop() if orders else strategy.workers,
        buckets=tuple(_bucket(index, bucket, split) for index, bucket in enumerate(strategy.buckets)),
        label=strategy.label,
        reason=strategy.reason,
        predicted_step_s=strategy.evidence.predicted_step_s or 0.0,
        candidates=strategy.evidence.candidates,
    )


def _bucket(index: int, bucket: Bucket, split: set[str]) -> first.Bucket:
    found = next((part.variable for part in bucket.parts if part.variable in split), None)
    if found is not None:
        raise UsageError(f"plan: bucket {index} has a part of {found}, and whole ones are run\n{HINT}")
    if bucket.ways is not None:
        raise UsageError(f"plan: bucket {index} uses some cards alone, and all are used\n{HINT}")
    algorithm, sizes = _algorithm(index, bucket)
    return first.Bucket(
        gradients=tuple(part.variable for part in bucket.parts),
        elements=bucket.elements,
        dtype=bucket.dtype,
        priority=bucket.priority,
        synchroniser=first.Synchroniser(
            algorithm=algorithm,
            sizes=sizes,
            codec=bucket.codec,
            codec_links=bucket.codec_links,
            chunk_bytes=bucket.chunk_bytes,
        ),
    )


def _algorithm(index: int, bucket: Bucket) -> tuple[str, tuple[int, ...]]:
    route = bucket.route
    if isinstance(route, AllReduce):
        return route.algorithm, route.sizes
    if isinstance(route, Owned) and route.update == "replicas" and route.via == Direct():
        shares = {owner.rank: owner.share for owner in route.owners if owner.share}
        if len(set(shares.values())) == 1 and set(bucket.order[: len(shares)]) == set(shares):
            return "parameter_server", (len(shares),)
    raise UsageError(f"plan: bucket {index} is {_named(route)}, which plans do not run\n{HINT}")


def _named(route: object) -> str:
    return f"`{type(route).__name__.lower()}`"
