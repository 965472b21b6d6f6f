"""The rows of `python -m benches delays`: a star of four hosts whose links take so many times what an iteration computes.

The coverage rate is the time that gradients travel over the time of forward and backward. Computation sleeps, so that four ranks do
not fight for cores; executors and links are real.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import msgspec
from msgspec import Struct

from benches.emulated import hosts, in_emulation
from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Bucket, Part, Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import EXACT, Promise
from hocket.bench.layered import layered
from hocket.planning import delays, search

WORLD = 4
LAYERS, ELEMENTS = 8, 250_000
FORWARD_S, BACKWARD_S = 0.07, 0.14

COVERAGE = {"0.3": 0.3, "1.0": 1.0, "1.4": 1.4, "2.0": 2.0, "4.0": 4.0}

TARGETS = {"1.4": 1.25, "2.0": 1.7}
"""How many times as fast as the best synchronous plan."""

PROMISES = {
    "merged 2": Promise("merged", merge=2),
    "late by 1": Promise("delayed", delay=1),
    "merged 2, late by 1": Promise("delayed", merge=2, delay=1),
    "merged 4, late by 1": Promise("delayed", merge=4, delay=1),
}


class Row(Struct, frozen=True, kw_only=True):
    """A contender. `times`: how many times as fast as the best synchronous one; None of these themselves."""

    coverage: str
    contender: str
    predicted_s: float
    measured_s: float
    updates: float
    times: float | None = None


def rows(coverage: str) -> Iterator[Row]:
    """All contenders, in turns in one job. Raises PeerError where there are no network namespaces."""
    profile = model()
    bytes_ = sum(each.shape[0] * 4 for each in profile.gradients)
    travels_s = COVERAGE[coverage] * (FORWARD_S + BACKWARD_S)
    cluster = hosts([8 * bytes_ * 2 * (WORLD - 1) / WORLD / travels_s] * WORLD)
    plans = contenders(cluster, profile)
    with tempfile.TemporaryDirectory(prefix="hocket-delays-") as directory:
        files.write(Path(directory) / "profile.json", profile)
        for at, plan in enumerate(plans.values()):
            files.write(Path(directory) / f"{at}.json", plan)
        argv = [sys.executable, "-m", "benches.delays.rank", directory, str(len(plans))]
        medians = in_emulation(cluster, [host.name for host in cluster.hosts], argv)
    measured_s = {name: median(blocks) for name, blocks in zip(plans, medians, strict=True)}
    best_s = min(measured_s[name] for name, plan in plans.items() if not plan.schedule.turns)
    for name, plan in plans.items():
        own = [len(turns) / plan.schedule.period for turns in plan.schedule.turns]
        yield Row(
            coverage=coverage,
            contender=name,
            predicted_s=plan.predicted_step_s,
            measured_s=measured_s[name],
            updates=sum(own) / len(own) if own else 1.0,
            times=best_s / measured_s[name] if own else None,
        )


def contenders(cluster: Cluster, profile: Profile) -> dict[str, Plan]:
    """The best synchronous plan with a barrier and with gates, and with what each promise allows, where that changes it."""
    considered = search.considered(cluster, profile, WORLD, promise=EXACT)
    plain = considered.explained(considered.best)
    gates = msgspec.structs.replace(plain.schedule, overlap="gates")
    barrier = msgspec.structs.replace(plain.schedule, overlap="barrier")
    found = {
        "synchronous": msgspec.structs.replace(plain, schedule=barrier),
        "synchronous, gates": msgspec.structs.replace(plain, schedule=gates),
        # What forward needs first goes first, as in ByteScheduler: the planner's buckets are for a barrier.
        "synchronous, gates by need": msgspec.structs.replace(plain, schedule=gates, buckets=_by_need(plain)),
    }
    for name, promise in PROMISES.items():
        plan = delays.scheduled(plain, considered.question.graph, profile, promise, "linear")
        if plan.schedule.turns:
            found[name] = plan
    return found


def _by_need(plan: Plan) -> tuple[Bucket, ...]:
    """A bucket for each layer, with the route of the plan's first one."""
    return tuple(
        msgspec.structs.replace(
            plan.buckets[0], parts=(Part(variable=f"{at}.weight"),), elements=ELEMENTS, priority=at
        )
        for at in range(LAYERS)
    )


def model() -> Profile:
    """Equal layers."""
    return layered("paced", [ELEMENTS] * LAYERS, forward_s=FORWARD_S, backward_s=BACKWARD_S)
