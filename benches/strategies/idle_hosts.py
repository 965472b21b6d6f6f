"""`idle-hosts`: four hosts that train and two that do not, at 200 Mbit/s each: part of each gradient goes to owners on the two."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

import msgspec

from benches.emulated import hosts
from benches.predict.measure import steps
from benches.row import Row
from benches.strategies.cases import MEGABIT, MODELS
from hocket.artefacts.plan import AllReduce, Owned, Owner, Plan
from hocket.planning.search import considered
from hocket.tools.report.quantity import TIMES

WORKERS, IDLE = 4, 2
CLUSTER = hosts([200 * MEGABIT] * (WORKERS + IDLE))
BEST_SHARE = 0.6
"""Best fraction of gradients on idle hosts: a worker that owns s sends 1 + s (n - 2), an idle host n s."""
NEAR = 0.05
TURNS, STEPS = 3, 4
NAME = "idle-hosts"


def idle_share(plan: Plan) -> float:
    """Fraction of all elements that is owned by hosts that do not train."""
    owned = total = 0.0
    for bucket in plan.buckets:
        total += bucket.elements
        if isinstance(bucket.route, Owned):
            shares = {owner.rank: owner.share for owner in bucket.route.owners}
            idle = sum(share for rank, share in shares.items() if rank not in plan.workers)
            owned += bucket.elements * idle / sum(shares.values())
    return owned / total


def measured() -> Iterator[Row]:
    """Compare the planner's plan, the best ring of the four, and the two idle hosts as servers of everything, in turns."""
    profile = MODELS["even"]
    found = considered(CLUSTER, profile, WORKERS + IDLE, helpers=IDLE)
    plan = found.best
    ring = found.of_builder("ring")
    only = Owned(owners=tuple(Owner(rank=WORKERS + at) for at in range(IDLE)))
    servers = msgspec.structs.replace(
        ring,
        label="servers",
        world=WORKERS + IDLE,
        buckets=tuple(
            msgspec.structs.replace(bucket, route=only, order=tuple(range(WORKERS + IDLE)))
            for bucket in ring.buckets
        ),
    )
    assert all(bucket.route == AllReduce(algorithm="ring") for bucket in ring.buckets)  # noqa: S101  # what it is called
    names = ["planner", "ring", "servers"]
    times = steps(CLUSTER, [plan, ring, servers] * TURNS, profile, STEPS)
    median_s = {
        name: statistics.median(step_s for turn in times[at :: len(names)] for step_s in turn)
        for at, name in enumerate(names)
    }
    yield Row(
        name=NAME,
        what=f"share of idle hosts, off the best ({BEST_SHARE})",
        value=abs(idle_share(plan) - BEST_SHARE),
        target=NEAR,
    )
    yield Row(
        name=NAME,
        what=f"step of the better of ring and servers over that of {plan.label}",
        value=min(median_s["ring"], median_s["servers"]) / median_s["planner"],
        target=1.15,
        least=True,
        unit=TIMES,
    )
    for name in names:
        yield Row(name=NAME, what=f"step of {name}", value=median_s[name] * 1e3, unit="ms")
