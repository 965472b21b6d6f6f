"""Plan of the remaining members after a loss: the same buckets, by routes that fit their hosts.

The members have to go on at once, so nothing is searched for.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from msgspec.structs import replace

from hocket.artefacts.plan import AllReduce, Bucket, Evidence, Plan, Traced
from hocket.planning import seconds
from hocket.planning.buckets import with_codec
from hocket.planning.default import Choice, by_hosts


def following(plan: Plan, hosts: Sequence[str], alive: Sequence[int] | None = None) -> Plan:
    """Return a plan for ranks on these hosts. Buckets have the same parts, so their memory stays; policies decide anew about
    theirs. Where owners update, seconds take the parts of those that are gone; ranks that have met own equal parts.

    Means travel by the route that fits the hosts, and over all cards, since a host that has joined may have fewer;
    where they were rounded, they are rounded between hosts. `alive`: these ranks, in the plan; None: they have met.

    >>> from hocket.artefacts.gradient import Gradient
    >>> from hocket.planning.default import default_plan
    >>> before = default_plan([Gradient("w", (10,), "f32")], by_hosts("abc"))
    >>> after = following(before, "aa")
    >>> after.world, after.buckets[0].route.algorithm, after.buckets[0].order
    (2, 'in_place', (0, 1))
    """
    choice = by_hosts(hosts)
    remote = [
        pair for pair in itertools.permutations(range(len(hosts)), 2) if hosts[pair[0]] != hosts[pair[1]]
    ]

    def follows(bucket: Bucket) -> Bucket:
        if isinstance(bucket.route, Traced):
            return replace(bucket, order=choice.order, cards=None)
        if seconds.updates(bucket):
            owned = seconds.anew(bucket, hosts) if alive is None else seconds.among(bucket, alive, hosts)
            next_one = replace(owned, codec="none", codec_links=(), cards=None)
        else:
            next_one = _mean(bucket, choice)
        return with_codec(next_one, bucket.codec, remote) if remote and bucket.codec != "none" else next_one

    return replace(
        plan,
        world=len(hosts),
        workers=choice.order,
        buckets=tuple(map(follows, plan.buckets)),
        reason=f"The buckets of a plan for {plan.world} ranks. {choice.reason}",
        evidence=Evidence(),
    )


def means(plan: Plan, hosts: Sequence[str]) -> Plan:
    """Return the plan with a mean of all ranks in place of each policy."""
    choice = by_hosts(hosts)
    return replace(
        plan,
        buckets=tuple(
            _mean(bucket, choice) if isinstance(bucket.route, Traced) else bucket for bucket in plan.buckets
        ),
    )


def _mean(bucket: Bucket, choice: Choice) -> Bucket:
    assert isinstance(choice.route, AllReduce)  # noqa: S101  # `by_hosts` knows no other
    return replace(
        bucket,
        route=choice.route,
        order=choice.order,
        chunk_bytes=choice.chunk_bytes,
        rule=choice.rule,
        codec="none",
        codec_links=(),
        cards=None,
    )
