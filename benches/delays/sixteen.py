"""Row `sixteen` of `python -m benches delays`: DeFT's own comparison, simulated message by message.

Sixteen ranks on two nodes, the models of the paper's Table I (`table_1`), 10 to 40 Gbit/s, one ring for all. The paper's text says
that DeFT is 1.29 to 2.15 times as fast as US-Byte and ByteScheduler; its figures are not public as numbers. DeFT is the paper's
own scheduler; Hocket's plan under the same promise stands beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from statistics import fmean
from typing import NamedTuple

import msgspec

from benches.delays import contenders, table_1
from benches.delays.contenders import Field
from benches.row import Row
from hocket.artefacts.chunks import CHUNK_BYTES
from hocket.artefacts.plan import AllReduce, Plan
from hocket.artefacts.promise import EXACT, Promise
from hocket.errors import UsageError
from hocket.planning import schedules, search
from hocket.planning.for_job import updates_per_step
from hocket.tools.report.quantity import TIMES

GBIT_PER_S = (10, 20, 30, 40)

DDP_BYTES = 25_000_000 // table_1.SCALE
"""The default size of DDP's buckets."""

PART_ELEMENTS = 6_500_000 // table_1.SCALE
"""DeFT's limit on a part."""

PARTS_MAX = 100
"""Limit on parts of a plan for which DeFT's scheduler runs, which then takes seconds."""

PROMISE = Promise("delayed", merge=8, delay=2)

FRONT = 3
"""Simulated plans of a kind: the fastest by the closed form."""

SAID = "the paper: 1.29 to 2.15 times"

ORDER = ("DDP", "ByteScheduler-like", "US-Byte-like", "DeFT")


class Simulated(NamedTuple):
    """A contender: seconds of an iteration, and updates per iteration."""

    iteration_s: float
    updates: float


def rows() -> Iterator[Row]:
    """Iterations of all contenders in all cases, and the least lead of each over the one before."""
    ahead: dict[tuple[str, str], list[float]] = {}
    for model in table_1.TABLE:
        for gbit_per_s in GBIT_PER_S:
            found = simulated(model, gbit_per_s)
            for name, each in found.items():
                what = f"{model}, {gbit_per_s} Gbit/s: {name}, {each.updates:.2f} updates an iteration: iteration"
                yield _row(what, each.iteration_s * 1e3, unit="ms")
            for slower, faster in itertools.pairwise(ORDER):
                times = found[slower].iteration_s / found[faster].iteration_s
                ahead.setdefault((faster, slower), []).append(times)
            for other in ORDER[1:3]:
                times = found[other].iteration_s / found["DeFT"].iteration_s
                what = f"{model}, {gbit_per_s} Gbit/s: DeFT over {other} ({SAID})"
                yield _row(what, times, unit=TIMES)
    for (faster, slower), each_times in ahead.items():
        what = f"{faster} over {slower}, in the least of {len(each_times)} cases"
        yield _row(what, min(each_times), 1.0, least=True, unit=TIMES)


def simulated(model: str, gbit_per_s: float) -> dict[str, Simulated]:
    """Simulate all contenders, in ORDER, and Hocket."""
    of = field(model, gbit_per_s)
    uniform = contenders.byte_scheduler(of)
    sequential = fastest(uniform, of)
    # Uniform parts in the sequential order are among those that US-Byte may choose.
    unequal = min(fastest(contenders.us_byte(of), of), sequential, key=lambda each: each[0])
    plans = {
        "DDP": (contenders.simulated_s(ddp := contenders.ddp(of, DDP_BYTES), of), ddp),
        "ByteScheduler-like": sequential,
        "US-Byte-like": unequal,
        "DeFT": fastest(deft(of), of),
    }
    delayed = list(contenders.delayed(of, PROMISE))
    if delayed:
        plans["Hocket, merged up to 8 and late by up to 2"] = fastest(delayed, of)
    return {
        name: Simulated(iteration_s, fmean(updates_per_step(plan)))
        for name, (iteration_s, plan) in plans.items()
    }


def field(model: str, gbit_per_s: float) -> Field:
    """Make the case, with a ring for all contenders and without codecs: the paper compares schedules alone."""
    profile, cluster = table_1.profile(model), table_1.cluster(model, gbit_per_s)
    considered = search.considered(cluster, profile, table_1.WORLD, promise=EXACT)
    rings = [plan for plan in considered.uniform if _is_ring(plan)]
    ring = min(rings, key=lambda plan: plan.predicted_step_s).buckets[0]
    return Field(cluster, profile, considered, (ring,))


def deft(of: Field) -> Iterator[Plan]:
    """The paper's schedule for uniform parts that are within its limit and fit into its windows."""
    for plan in contenders.byte_scheduler(of):
        longest = max(bucket.elements for bucket in plan.buckets)
        if (
            longest > PART_ELEMENTS
            or len(plan.buckets) > PARTS_MAX
            or plan.buckets[0].chunk_bytes != CHUNK_BYTES
        ):
            continue
        try:
            schedule = schedules.deft(plan, of.graph, of.profile, rate="linear")
        except UsageError:
            continue
        yield msgspec.structs.replace(plan, label="DeFT", schedule=schedule, promise="uncorrected")


def fastest(plans: Iterable[Plan], of: Field) -> tuple[float, Plan]:
    """Seconds of the fastest plan, message by message, and this plan. Of plans without turns, only the FRONT with the fastest
    predictions are simulated."""
    turned: list[Plan] = []
    plain: list[Plan] = []
    for plan in plans:
        (turned if plan.schedule.turns else plain).append(plan)
    plain.sort(key=lambda plan: contenders.predicted(plan, of).predicted_step_s)
    known = [(contenders.simulated_s(plan, of), plan) for plan in (*turned, *plain[:FRONT])]
    return min(known, key=lambda each: each[0])


def _is_ring(plan: Plan) -> bool:
    route = plan.buckets[0].route
    return isinstance(route, AllReduce) and route.algorithm == "ring"


def _row(what: str, value: float, target: float | None = None, *, least: bool = False, unit: str = "") -> Row:
    return Row(name="sixteen", what=what, value=value, target=target, least=least, unit=unit)
