"""A bucket's route in the form for native counting, prediction and building: an all-reduce of the list, or owners."""

from __future__ import annotations

from collections.abc import Collection

from hocket import _native
from hocket.artefacts.plan import AllReduce, Bucket, Gathered, Owned, Plan, Route, Served, Traced
from hocket.errors import UsageError
from hocket.planning.told import Shares


def by(bucket: Bucket, workers: Collection[int] | None = None) -> AllReduce | Shares:
    """The collective of a bucket among its `members`. Raises UsageError for a route without a program.

    `workers`: the ranks that have gradients; default: all of the bucket's order.
    """
    route = bucket.route
    if isinstance(route, AllReduce):
        return route
    if isinstance(route, Owned):
        ranks = members(bucket, workers)
        shares = {owner.rank: owner.share for owner in route.owners}
        return Shares(
            shares=tuple(shares.get(rank, 0) for rank in ranks),
            workers=len(_workers(bucket, workers)),
            via=route.via,
        )
    if isinstance(route, Served):
        raise UsageError(
            "plan: a bucket is `served`: when its workers send is decided while they train\n"
            "hint: owners (`owned`) of the same ranks send the same, in step"
        )
    raise UsageError(
        f"plan: what a bucket that is `{name(route)}` sends is decided when it runs\nhint: `hocket plan` makes plans that are known"
    )


def owned_parts(bucket: Bucket, workers: Collection[int] | None = None) -> list[tuple[int, int, int]]:
    """Parts of a bucket by owners: place of the owner among `members`, first and end element. Raises UsageError like `by`, and if
    the owners are not members.

    >>> from hocket.artefacts.plan import Owner
    >>> owned = Owned(owners=(Owner(rank=2), Owner(rank=0, share=3)))
    >>> owned_parts(Bucket(parts=(), elements=40, dtype="f32", route=owned, order=(0, 1, 2), priority=0))
    [(0, 0, 30), (2, 30, 40)]
    """
    route = by(bucket, workers)
    return [] if isinstance(route, AllReduce) else _native.owned_parts(route, bucket.elements)


def members(bucket: Bucket, workers: Collection[int] | None = None) -> tuple[int, ...]:
    """Ranks of a bucket's order: those with gradients before those that only own.

    >>> members(Bucket(parts=(), elements=0, dtype="f32", route=AllReduce(algorithm="ring"), order=(2, 0, 1), priority=0), (0, 1))
    (0, 1, 2)
    """
    first = _workers(bucket, workers)
    if len(first) == len(bucket.order):
        return first
    trained = set(first)
    return (*first, *(rank for rank in bucket.order if rank not in trained))


def _workers(bucket: Bucket, workers: Collection[int] | None) -> tuple[int, ...]:
    if workers is None:
        return bucket.order
    # Of a tuple of a thousand ranks, each look would go through all.
    among = frozenset(workers) if isinstance(workers, tuple) else workers
    return tuple(rank for rank in bucket.order if rank in among)


def reduces_means(bucket: Bucket) -> bool:
    """Return whether every rank gets the mean of the bucket's gradients: such gradients may be summed over iterations and applied
    late."""
    route = bucket.route
    return isinstance(route, AllReduce) or (isinstance(route, Owned) and route.update == "replicas")


def known(plan: Plan | None) -> bool:
    """Return whether a plan determines all traffic: policies decide at run time, rows depend on the batch, and workers of parameter
    servers drift apart."""
    return plan is not None and not any(
        isinstance(bucket.route, Gathered | Served | Traced) for bucket in plan.buckets
    )


def name(route: Route) -> str:
    """The name of a route in plans and reports: the algorithm, or the kind of route.

    >>> name(AllReduce(algorithm="ring"))
    'ring'
    """
    return route.algorithm if isinstance(route, AllReduce) else type(route).__name__.lower()
