"""The plan of the members that are left: the same buckets, by the route that fits their hosts.

Whoever is left has to go on at once, so nothing is searched for.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from hocket.artefacts.plan import Evidence, Plan
from hocket.planning.default import by_hosts


def following(plan: Plan, hosts: Sequence[str]) -> Plan:
    """A plan of all-reduces for ranks on these hosts. Buckets have the same parts, so their memory stays.

    >>> from hocket.artefacts.gradient import Gradient
    >>> from hocket.planning.default import default_plan
    >>> before = default_plan([Gradient("w", (10,), "f32")], by_hosts("abc"))
    >>> after = following(before, "aa")
    >>> after.world, after.buckets[0].route.algorithm, after.buckets[0].order
    (2, 'in_place', (0, 1))
    """
    choice = by_hosts(hosts)
    buckets = (
        replace(
            bucket,
            route=choice.route,
            order=choice.order,
            chunk_bytes=choice.chunk_bytes,
            rule=choice.rule,
        )
        for bucket in plan.buckets
    )
    return replace(
        plan,
        world=len(hosts),
        workers=choice.order,
        buckets=tuple(buckets),
        reason=f"The buckets of a plan for {plan.world} ranks. {choice.reason}",
        evidence=Evidence(),
    )
