"""Part of helpers in a plan: ranks that train nothing and own parts of buckets. These functions are the pure part of `helping`."""

from __future__ import annotations

from hocket.artefacts.plan import Owned, Plan, Served
from hocket.errors import UsageError
from hocket.refusals import HELPERS, SERVERS, TURNS, refused

HEADER = (1 << 31) + (1 << 20)
"""Number of the header's program, chosen since not all ranks load it; those of buckets follow, epoch by epoch in turn."""

BUCKETS_MAX = 1 << 18


def helps(plan: Plan) -> bool:
    """Return whether ranks of a plan that do not train are helpers rather than parameter servers.

    >>> from hocket.planning.buckets import plan_of
    >>> helps(plan_of([], 2, label=""))
    False
    """
    return len(plan.workers) < plan.world and not any(isinstance(each.route, Served) for each in plan.buckets)


def shared(plan: Plan, bucket: int) -> bool:
    """Return whether helpers own some of a bucket."""
    own = plan.buckets[bucket]
    return isinstance(own.route, Owned) and max(own.order, default=0) >= len(plan.workers)


def number(bucket: int, epoch: int) -> int:
    """Return the number of a bucket's program in an epoch, on all its ranks: programs of the epoch before are still loaded."""
    return HEADER + 1 + (epoch % 2) * BUCKETS_MAX + bucket


def check_helpers(plan: Plan) -> None:
    """Raise a UsageError that names a task which ranks that do not train cannot do."""
    workers = len(plan.workers)
    servers = any(isinstance(each.route, Served) for each in plan.buckets)
    for index, bucket in enumerate(plan.buckets):
        route = bucket.route
        if isinstance(route, Served) or max(bucket.order, default=0) < workers:
            continue
        if servers:
            where = f"plan: owners of bucket {index} do not train, and others serve"
            raise refused(HELPERS, SERVERS, where=where)
        if isinstance(route, Owned) and route.update == "owners":
            idle = min(rank for rank in bucket.order if rank >= workers)
            raise UsageError(
                f"plan: rank {idle} is to update values of bucket {index}, and does not train: it has no optimizer\n"
                "hint: owners that train, for those buckets in which owners update"
            )
    if helps(plan) and not any(shared(plan, at) for at in range(len(plan.buckets))):
        raise UsageError(
            f"plan: ranks from {workers} on neither train, nor own nor serve anything\nhint: a plan for {workers} ranks"
        )
    if helps(plan) and plan.schedule.turns:
        where = "plan: merged or late gradients, and ranks that do not train"
        raise refused(HELPERS, TURNS, where=where)
