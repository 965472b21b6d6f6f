"""One plan of the planner against those of builders, in turns on one testbed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benches.predict.measure import steps
from benches.strategies.cases import builders
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.planning.search import considered
from hocket.tools.simulation import shortlist

TURNS, STEPS = 3, 4
"""Runs of each plan, and steps of a run; the median of all steps counts."""


@dataclass(frozen=True)
class Compared:
    """The planner's plan, and medians of steps: its own, and builders' by name.

    `best`: the fastest builder, `allowed`: its predicted step over the bound. `ratio`: its step over the plan's, in further turns
    of these two alone, since the least of several medians is biased.
    """

    plan: Plan
    step_s: float
    builders_s: dict[str, float]
    best: str
    ratio: float
    allowed: float


def compared(said: Cluster, profile: Profile, *, emulated: Cluster | None = None) -> Compared:
    """Compare plans. `said`: the cluster for planner and builders; `emulated`: the testbed's, if it is described differently."""
    found = considered(said, profile, len(said.hosts))
    plan = shortlist.chosen(found, said, profile)
    others = builders(said, profile, found)
    on = emulated or said
    step_s, *rest = medians(steps(on, [plan, *others.values()] * TURNS, profile, STEPS), 1 + len(others))
    builders_s = dict(zip(others, rest, strict=True))
    best = min(builders_s, key=builders_s.__getitem__)
    own_s, best_s = medians(steps(on, [plan, others[best]] * TURNS, profile, STEPS), 2)
    allowed = found.question.predicted(others[best]).step_s / found.solved.solution.bound_s
    return Compared(plan, step_s, builders_s, best, best_s / own_s, allowed)


def medians(times: Sequence[Sequence[float]], plans: int) -> list[float]:
    """Median step of each plan, for plans that ran in turns."""
    return [statistics.median(step_s for turn in times[at::plans] for step_s in turn) for at in range(plans)]
