"""The rows of `python -m benches directions`: plans for hosts that are slow in one direction or both, beside the least time of any
algorithm, in simulation and on the testbed with the ring and Gloo."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benches.directions.cases import SHARES, Case, homes, one_gradient, slow_hosts
from benches.emulated import in_emulation
from benches.row import Row
from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.planning.search import considered
from hocket.tools.simulation.fidelity import predict
from hocket.tools.simulation.shortlist import chosen

BIT_PER_S = {4: 100e6, 8: 40e6}
"""Rate of hosts that are not slow, by their number: two cores do not fill faster links of eight hosts, whose ring takes half as
long again as it should at 100 Mbit/s."""

SIMULATED_BYTES, MEASURED_BYTES = 25_000_000, 16_000_000
TURNS = 3
NEAR = 1.06
"""Target: time over the bound (issue 42)."""


def planned(case: Case, size_bytes: int) -> Plan:
    """The plan that `hocket plan` chooses."""
    profile = one_gradient(size_bytes, case.world)
    return chosen(considered(case.cluster, profile, case.world), case.cluster, profile)


def simulated(case: Case) -> Iterator[Row]:
    """The plan's simulated time over the bound."""
    plan = planned(case, SIMULATED_BYTES)
    step_s = predict(plan, case.cluster, one_gradient(SIMULATED_BYTES, case.world)).step_s
    ratio = step_s / case.bound_s(SIMULATED_BYTES)
    yield Row(name=case.name, what=f"simulated over the bound: {plan.label}", value=ratio, target=NEAR)


def measured(case: Case) -> Iterator[Row]:
    """Times over the bound on the testbed; one row for each contender."""
    plan = planned(case, MEASURED_BYTES)
    yield from over_the_bound(
        plan, case.cluster, case.bound_s(MEASURED_BYTES), name=case.name, turns=TURNS, target=NEAR
    )


def over_the_bound(
    plan: Plan, cluster: Cluster, bound_s: float, *argv: str, name: str, turns: int, target: float
) -> Iterator[Row]:
    """Times of a plan's all-reduce, of the ring and of Gloo over the bound, on the testbed in turns. `argv`: further arguments of
    `benches.directions.rank`; `target`: of the plan."""
    with tempfile.TemporaryDirectory(prefix="hocket-bench-") as folder:
        paths = Path(folder, "plan.json"), Path(folder, "cluster.toml")
        files.write(paths[0], plan)
        files.write(paths[1], cluster)
        command = [sys.executable, "-m", "benches.directions.rank", "--turns", str(turns)]
        command += ["--plan", str(paths[0]), "--cluster", str(paths[1]), *argv]
        times_s = in_emulation(cluster, [host.name for host in cluster.hosts], command)
    for contender, each_s in times_s.items():
        yield Row.over(
            [one_s / bound_s for one_s in each_s],
            name=name,
            what=f"{contender} over the bound" + (f": {plan.label}" if contender == "plan" else ""),
            target=target if contender == "plan" else None,
        )


def _rows() -> dict[str, Callable[[], Iterator[Row]]]:
    cases: dict[str, Case] = {"homes": homes()}
    for way, whole in (("both", True), ("one", False)):
        for world, rate in BIT_PER_S.items():
            for share in SHARES:
                for slow in (1, 2):
                    name = f"{way}-{world}-{share:g}-{slow}"
                    cases[name] = slow_hosts(world, rate, share, slow, whole=whole)
    rows: dict[str, Callable[[], Iterator[Row]]] = {}
    for name, case in cases.items():
        rows[f"simulated-{name}"] = partial(simulated, case)
        rows[name] = partial(measured, case)
    return rows


ROWS = _rows()
