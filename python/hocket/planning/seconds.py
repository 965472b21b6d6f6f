"""Second owners: in an elastic job, each part of a bucket that owners update has another rank that steps it as its owner does.

The ranks of such a bucket have an order. The second of a part is the rank after its owner, or the one before it where that is the
last. It becomes the owner where the owner is gone, and the next rank its second. So who has a part follows from the order and the
ranks that are left alone, whatever the order in which the others were lost, and a rank's parts always lie beside one another.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import Bucket, Direct, Owned, Owner, Plan, TwoLevel
from hocket.planning.routes import members, owned_parts


class Portion(NamedTuple):
    """Elements of a bucket that one rank owned when all ranks met. `ranks`: the bucket's, in order; `at`: the owner's place."""

    bucket: int
    start: int
    stop: int
    ranks: tuple[int, ...]
    at: int

    def holders(self, alive: Collection[int]) -> tuple[int, ...]:
        """Return its owner and its second among ranks that are left: fewer where fewer are left."""
        return holders(self.ranks, self.at, alive)


def holders(ranks: Sequence[int], at: int, alive: Collection[int]) -> tuple[int, ...]:
    """Return the owner and the second of the part of the rank at that place of the order.

    >>> holders((0, 1, 2, 3), 1, {0, 1, 2, 3}), holders((0, 1, 2, 3), 1, {0, 2, 3}), holders((0, 1, 2, 3), 3, {0, 1, 3})
    ((1, 2), (2, 3), (3, 1))
    """
    after = [rank for rank in ranks[at:] if rank in alive]
    before = [rank for rank in reversed(ranks[:at]) if rank in alive]
    return (*after, *before)[:2]


def updates(bucket: Bucket) -> bool:
    """Return whether owners update the bucket."""
    return isinstance(bucket.route, Owned) and bucket.route.update == "owners"


def portions(plan: Plan) -> tuple[Portion, ...]:
    """Return the portions of all buckets that owners update."""
    found = []
    for index, bucket in enumerate(plan.buckets):
        if updates(bucket):
            ranks, owned = members(bucket, plan.workers), owned_parts(bucket, plan.workers)
            found += [Portion(index, start, stop, ranks, at) for at, start, stop in owned]
    return tuple(found)


def apart(plan: Plan, hosts: Sequence[Hashable]) -> Plan:
    """Return the plan with the ranks of such buckets in an order in which neighbours are on different hosts as far as may be. Where
    gradients travel through stations, which are ranks of one host, the order stays.

    >>> from hocket.planning.buckets import plan_of
    >>> route = Owned(owners=(Owner(rank=0), Owner(rank=1), Owner(rank=2)), update="owners")
    >>> bucket = Bucket(parts=(), elements=9, dtype="f32", route=route, order=(0, 1, 2), priority=0)
    >>> apart(plan_of([bucket], 3, label=""), ["a", "a", "b"]).buckets[0].order
    (0, 2, 1)
    """
    buckets = tuple(
        msgspec.structs.replace(bucket, order=_alternating(bucket.order, hosts))
        if isinstance(bucket.route, Owned) and updates(bucket) and isinstance(bucket.route.via, Direct)
        else bucket
        for bucket in plan.buckets
    )
    return msgspec.structs.replace(plan, buckets=buckets)


def _alternating(order: Iterable[int], hosts: Sequence[Hashable]) -> tuple[int, ...]:
    left: dict[Hashable, list[int]] = {}
    for rank in order:
        left.setdefault(hosts[rank], []).append(rank)
    found: list[int] = []
    last: Hashable = None
    while left:
        others = [host for host in left if host != last] or list(left)
        last = max(others, key=lambda host: len(left[host]))
        found.append(left[last].pop(0))
        if not left[last]:
            del left[last]
    return tuple(found)


def among(bucket: Bucket, alive: Sequence[int], hosts: Sequence[str]) -> Bucket:
    """Return a bucket that owners update for the ranks that are left, by their ranks before, of which each has the place as its
    rank. Each part of one that is gone goes to its second. `hosts`: theirs.

    >>> route = Owned(owners=(Owner(rank=0), Owner(rank=1), Owner(rank=2)), update="owners")
    >>> bucket = Bucket(parts=(), elements=9, dtype="f32", route=route, order=(0, 1, 2), priority=0)
    >>> left = among(bucket, (0, 2), "ab")
    >>> left.order, [(each.rank, each.share) for each in left.route.owners]
    ((0, 1), [(0, 1), (1, 2)])
    """
    route = bucket.route
    assert isinstance(route, Owned)  # noqa: S101  # owners update it
    shares = dict.fromkeys(bucket.order, 0)
    for owner in route.owners:
        heir, *_ = holders(bucket.order, bucket.order.index(owner.rank), alive)
        shares[heir] += owner.share
    order = tuple(alive.index(rank) for rank in bucket.order if rank in alive)
    owners = tuple(Owner(rank=rank, share=share) for rank in order if (share := shares[alive[rank]]))
    return msgspec.structs.replace(
        bucket,
        route=msgspec.structs.replace(route, owners=owners, via=_via(route, order, hosts)),
        order=order,
    )


def anew(bucket: Bucket, hosts: Sequence[str]) -> Bucket:
    """Return a bucket that owners update for other ranks, on these hosts, which own equal parts."""
    route = bucket.route
    assert isinstance(route, Owned)  # noqa: S101  # owners update it
    order = tuple(range(len(hosts)))
    owners = tuple(Owner(rank=rank) for rank in order)
    return msgspec.structs.replace(
        bucket,
        route=msgspec.structs.replace(route, owners=owners, via=_via(route, order, hosts)),
        order=order,
    )


def _via(route: Owned, order: Sequence[int], hosts: Sequence[str]) -> Direct | TwoLevel:
    stations = tuple(len(list(group)) for _, group in groupby(hosts[rank] for rank in order))
    return TwoLevel(stations=stations) if isinstance(route.via, TwoLevel) and len(stations) > 1 else Direct()


def on_one_host(plan: Plan, hosts: Sequence[Hashable]) -> list[Portion]:
    """Return the portions whose owner and second are on one host of several: they are lost with it."""
    if len(set(hosts)) < 2:
        return []
    everyone = range(plan.world)
    return [each for each in portions(plan) if len({hosts[rank] for rank in each.holders(everyone)}) == 1]


def cost(plan: Plan, hosts: Sequence[Hashable]) -> str:
    """Return what second owners cost in an elastic job, and what is lost with a host, for people; empty without owners.

    >>> from hocket.planning.buckets import plan_of
    >>> route = Owned(owners=(Owner(rank=0), Owner(rank=1), Owner(rank=2)), update="owners")
    >>> bucket = Bucket(parts=(), elements=3 << 18, dtype="f32", route=route, order=(0, 1, 2), priority=0)
    >>> cost(plan_of([bucket], 3, label=""), "abc")
    'In an elastic job, second owners get 3.0 MiB more in a step, and optimizer state takes twice the memory.'
    """
    own = portions(plan)
    if not own or plan.world < 2:
        return ""
    sent = sum((each.stop - each.start) * ITEM_BYTES[plan.buckets[each.bucket].dtype] for each in own)
    mib = sent / (1 << 20)
    said = f"In an elastic job, second owners get {mib:.1f} MiB more in a step, and optimizer state takes twice the memory."
    if together := on_one_host(apart(plan, hosts), hosts):
        said += f" {len(together)} of {len(own)} parts have both owners on one host, and are lost with it."
    return said
