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
from hocket.simulation import shortlist

TURNS, STEPS = 3, 4
"""How often each plan runs, and its steps each time; the median of all counts."""


@dataclass(frozen=True)
class Compared:
    """The planner's plan, and medians of steps: its own, and builders' by name."""

    plan: Plan
    step_s: float
    builders_s: dict[str, float]

    @property
    def best(self) -> str:
        """The fastest builder."""
        return min(self.builders_s, key=self.builders_s.__getitem__)

    @property
    def ratio(self) -> float:
        """The fastest builder's step over the planner's."""
        return self.builders_s[self.best] / self.step_s


def compared(said: Cluster, profile: Profile, *, emulated: Cluster | None = None) -> Compared:
    """`said`: the cluster that planner and builders know; `emulated`: the testbed's, where it is described in another way."""
    found = considered(said, profile, len(said.hosts))
    plan = shortlist.chosen(found, said, profile)
    others = builders(said, profile, found)
    times = steps(emulated or said, [plan, *others.values()] * TURNS, profile, STEPS)
    own, *rest = medians(times, 1 + len(others))
    return Compared(plan, own, dict(zip(others, rest, strict=True)))


def medians(times: Sequence[Sequence[float]], plans: int) -> list[float]:
    """Of each of so many plans that ran in turns."""
    return [statistics.median(step_s for turn in times[at::plans] for step_s in turn) for at in range(plans)]
