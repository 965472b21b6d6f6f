"""What a bucket's route is as a collective that the algorithms do."""

from __future__ import annotations

from hocket.artefacts.plan import AllReduce, Bucket, Direct, Owned, Route
from hocket.errors import UsageError

OWNERS = "parameter_server"
"""The algorithm that has owners: the first ranks of the order."""


def all_reduce(bucket: Bucket) -> AllReduce:
    """The all-reduce by which a bucket travels over its order. Raises UsageError with what no program does.

    >>> from hocket.artefacts.plan import Owner
    >>> owned = Owned(owners=(Owner(rank=1), Owner(rank=0)))
    >>> all_reduce(Bucket(parts=(), elements=0, dtype="f32", route=owned, order=(0, 1, 2), priority=0)).sizes
    (2,)
    """
    route = bucket.route
    if isinstance(route, AllReduce):
        return route
    if isinstance(route, Owned) and route.update == "replicas" and route.via == Direct():
        shares = {owner.rank: owner.share for owner in route.owners if owner.share}
        if len(set(shares.values())) == 1 and set(bucket.order[: len(shares)]) == set(shares):
            return AllReduce(algorithm=OWNERS, sizes=(len(shares),))
        raise UsageError(
            "plan: owners run with equal shares, as the first ranks of their bucket's order\n"
            "hint: `hocket plan` makes plans that jobs run"
        )
    raise UsageError(
        f"plan: a bucket is `{name(route)}`, for which there is no program\nhint: `hocket plan` makes plans that jobs run"
    )


def name(route: Route) -> str:
    """As plans and reports call it: the algorithm's, or the kind of route.

    >>> name(AllReduce(algorithm="ring"))
    'ring'
    """
    return route.algorithm if isinstance(route, AllReduce) else type(route).__name__.lower()
