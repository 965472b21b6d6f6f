"""The rows of `python -m benches late`: plans for a rank that comes last, beside the least time of any algorithm, in simulation and
on the testbed with the ring and Gloo."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benches.emulated import in_emulation
from benches.late.cases import COMPUTED_S, Case
from benches.row import Row
from hocket.artefacts import files
from hocket.artefacts.plan import Plan
from hocket.planning.late import late_of
from hocket.planning.search import considered
from hocket.tools.simulation import late, shortlist

BIT_PER_S = 100e6
"""Rate of all hosts: processes of eight hosts on two cores fill such links."""
SIMULATED_BYTES, MEASURED_BYTES = 25_000_000, 16_000_000
LATE = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0)
"""How late the last rank is, in times that a ring takes."""
TURNS = 3
NEAR = 1.05
"""Target: time over the bound (issue 42)."""


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
    plan = planned(case)
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder:
        paths = Path(folder, "plan.json"), Path(folder, "cluster.toml")
        files.write(paths[0], plan)
        files.write(paths[1], case.cluster)
        argv = [sys.executable, "-m", "benches.directions.rank", "--turns", str(TURNS)]
        argv += ["--plan", str(paths[0]), "--cluster", str(paths[1])]
        argv += ["--late-rank", str(case.rank), "--late-s", str(case.late_s)]
        times_s = in_emulation(case.cluster, [host.name for host in case.cluster.hosts], argv)
    for contender, each_s in times_s.items():
        yield Row.over(
            [one_s / case.bound_s for one_s in each_s],
            name=_name(case),
            what=f"{contender} over the bound" + (f": {plan.label}" if contender == "plan" else ""),
            target=NEAR if contender == "plan" else None,
        )


def _name(case: Case) -> str:
    return f"p = {case.world}, late by {case.of_ring:g} rings"


def _rows() -> dict[str, Callable[[], Iterator[Row]]]:
    rows: dict[str, Callable[[], Iterator[Row]]] = {}
    for world in (4, 8):
        for of_ring in LATE:
            name = f"{world}-{of_ring:g}"
            rows[f"simulated-{name}"] = partial(simulated, Case(world, BIT_PER_S, SIMULATED_BYTES, of_ring))
            rows[name] = partial(measured, Case(world, BIT_PER_S, MEASURED_BYTES, of_ring))
    return rows


ROWS = _rows()
