"""The rows of `python -m benches late`: plans for a rank that comes last, beside the least time of any algorithm, in simulation and
on the testbed with the ring and Gloo."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import partial

from benches.directions.rows import BIT_PER_S, over_the_bound
from benches.emulated import in_emulation
from benches.late.cases import COMPUTED_S, Case
from benches.late.shares_rank import BATCH, SAMPLE_S, SPEEDS
from benches.row import Row
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.plan import Plan
from hocket.planning.late import late_of
from hocket.planning.search import considered
from hocket.tools.simulation import late, shortlist

FAST_BIT_PER_S = 1e9
"""Rate of hosts whose ranks are of unequal speed."""
SIMULATED_BYTES, MEASURED_BYTES = 25_000_000, 16_000_000
LATE = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
"""How late the last rank is, in times that a ring takes."""
TURNS = 3
NEAR = 1.05
"""Target: time over the bound (issue 42)."""
SAME = 1e-6
"""Target: relative difference of a gradient."""


def planned(case: Case) -> Plan:
    """The plan that `hocket plan` chooses."""
    cluster, profile = case.cluster, case.profile
    found = considered(cluster, profile, case.world)
    return late.chosen(shortlist.chosen(found, cluster, profile), found, cluster, profile)


def simulated_s(case: Case, plan: Plan) -> float:
    """Seconds of the plan's all-reduce, in simulation, from the others' begin."""
    known = late_of(case.profile, case.world)
    if known is None:
        raise ValueError(f"nobody is late: {case}")
    return late.step_s(plan, case.cluster, case.profile, known) - COMPUTED_S


def simulated(case: Case) -> Iterator[Row]:
    """The plan's simulated time over the bound."""
    plan = planned(case)
    ratio = simulated_s(case, plan) / case.bound_s
    yield Row(name=_name(case), what=f"simulated over the bound: {plan.label}", value=ratio, target=NEAR)


def measured(case: Case) -> Iterator[Row]:
    """Times over the bound on the testbed; one row for each contender."""
    late_rank = ("--late-rank", str(case.rank), "--late-s", str(case.late_s))
    yield from over_the_bound(
        planned(case), case.cluster, case.bound_s, *late_rank, name=_name(case), turns=TURNS, target=NEAR
    )


def shared() -> Iterator[Row]:
    """Steps of ranks of unequal speed over the ideal, in which all are done at once; and the mean beside one process."""
    names = [f"h{at}" for at in range(len(SPEEDS))]
    cluster = Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=FAST_BIT_PER_S) for name in names))
    found = in_emulation(cluster, names, [sys.executable, "-m", "benches.late.shares_rank"])
    ideal_s = BATCH * len(SPEEDS) * SAMPLE_S / sum(SPEEDS)
    for kind, what in (
        ("even", "equal batches"),
        ("shares", "shares given"),
        ("measured", "shares measured"),
    ):
        target = None if kind == "even" else NEAR
        yield Row(
            name="shares",
            what=f"{what}: step over the ideal",
            value=found["steps_s"][kind] / ideal_s,
            target=target,
        )
    yield Row(name="shares", what="gradient off one process's", value=found["differs"], target=SAME)


def _name(case: Case) -> str:
    return f"p = {case.world}, late by {case.of_ring:g} rings"


def _rows() -> dict[str, Callable[[], Iterator[Row]]]:
    rows: dict[str, Callable[[], Iterator[Row]]] = {"shares": shared}
    for world, rate in BIT_PER_S.items():
        for of_ring in LATE:
            name = f"{world}-{of_ring:g}"
            rows[f"simulated-{name}"] = partial(simulated, Case(world, rate, SIMULATED_BYTES, of_ring))
            rows[name] = partial(measured, Case(world, rate, MEASURED_BYTES, of_ring))
    return rows


ROWS = _rows()
