"""Rows of `python -m benches drawn`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

from msgspec import Struct

from benches.drawn import testbed
from benches.drawn.clusters import Case, case
from benches.drawn.rerouting import Rerouting
from benches.drawn.volume import least_s
from benches.row import Row
from hocket.artefacts.plan import Plan
from hocket.planning.search import considered
from hocket.tools.report.quantity import TIMES
from hocket.tools.simulation import flow, shortlist
from hocket.tools.simulation.networks import from_cluster

CASES = 100
EVALUATIONS = 800
"""Simulated plans of the other search, which take some ten to fifty times as long as the planner."""
MEDIAN, WORST = 2.0, 5.0
"""Percent by which a planned step may be longer than the other search's, median and worst."""
NAME = "simulated"


class Found(Struct, frozen=True, kw_only=True):
    """The planner's plan for a case and the other search's, both simulated; the planner's bound, and the volume bound."""

    case: str
    label: str
    planned_s: float
    rerouted_s: float
    predicted_s: float
    bound_s: float
    volume_s: float
    planning_s: float
    rerouting_s: float

    @property
    def regret(self) -> float:
        """Relative excess of the planned step over the shorter of both."""
        return self.planned_s / min(self.planned_s, self.rerouted_s) - 1


def simulator(on: Case) -> Callable[[Plan], float]:
    """Make a function for seconds of a plan's step, simulated message by message."""
    networks = {world: from_cluster(on.cluster, world) for world in (on.world - on.helpers, on.world)}
    return lambda plan: flow.predict(plan, networks[plan.world], on.profile).outcome.step_s


def found(on: Case, seed: int, evaluations: int = EVALUATIONS) -> Found:
    step_s = simulator(on)
    began_s = time.perf_counter()
    plan = shortlist.chosen(
        considered(on.cluster, on.profile, on.world, helpers=on.helpers), on.cluster, on.profile
    )
    planned_s = time.perf_counter()
    _, rerouted_s = Rerouting(on, step_s, seed).best(evaluations, [plan])
    ended_s = time.perf_counter()
    return Found(
        case=on.name,
        label=plan.label,
        planned_s=step_s(plan),
        rerouted_s=rerouted_s,
        predicted_s=plan.predicted_step_s,
        bound_s=plan.evidence.bound_step_s or 0.0,
        volume_s=least_s(on),
        planning_s=planned_s - began_s,
        rerouting_s=ended_s - planned_s,
    )


def simulated(cases: int = CASES, evaluations: int = EVALUATIONS) -> Iterator[Row]:
    """Regret on each cluster, and summaries."""
    all_found = []
    for seed in range(cases):
        each = found(case(seed), seed, evaluations)
        all_found.append(each)
        yield Row(name=each.case, what=f"regret of {each.label}", value=100 * each.regret, unit="%")
    regrets = [100 * each.regret for each in all_found]
    attainable = [min(each.planned_s, each.rerouted_s, each.predicted_s) for each in all_found]
    bounds = list(zip(all_found, attainable, strict=True))

    def row(what: str, value: float, target: float | None = None, unit: str = "") -> Row:
        return Row(name=NAME, what=what, value=value, target=target, unit=unit)

    yield row(f"regret of {cases} plans: the median", statistics.median(regrets), MEDIAN, "%")
    yield row("the worst", max(regrets), WORST, "%")
    yield row("bounds above a plan's step", sum(each.bound_s > least + 1e-9 for each, least in bounds), 0)
    yield row(
        "bounds below the volume bound", sum(each.bound_s < each.volume_s - 1e-9 for each in all_found), 0
    )
    gaps = [100 * (least / each.bound_s - 1) for each, least in bounds]
    yield row("the best step above the bound: the median", statistics.median(gaps), unit="%")
    planning_s = [each.planning_s for each in all_found]
    yield row("planning: the median", 1e3 * statistics.median(planning_s), unit="ms")
    yield row("planning: the longest", 1e3 * max(planning_s), unit="ms")
    ratios = [each.rerouting_s / each.planning_s for each in all_found]
    yield row(
        "time of the other search over the planner's: the median", statistics.median(ratios), unit=TIMES
    )


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    NAME: simulated,
    **{name: partial(testbed.measured, name) for name in testbed.CASES},
}
