"""Random plans on five clusters, and their steps, for judging and correcting predictions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from benches.emulated import hosts
from benches.predict.measure import steps
from benches.strategies.cases import GIGABIT, MEGABIT, MODELS
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import ROUNDED
from hocket.planning.question import Question, question_of
from hocket.planning.sampler import all_reduces, sampled
from hocket.tools.simulation.fidelity import predict

CLUSTERS: dict[str, Cluster] = {
    "star": hosts([GIGABIT] * 4),
    "racks": hosts([GIGABIT] * 4, 2, 100 * MEGABIT, alternating=True),
    "three racks": hosts([500 * MEGABIT] * 6, 3, 200 * MEGABIT),
    "slow host": hosts([100 * MEGABIT, *([GIGABIT] * 3)]),
    "uneven": hosts([rate * MEGABIT for rate in (1000, 500, 500, 300, 200)]),
}
PLANS = 60
STEPS = 5
"""Steps of each plan on real ranks; the median counts."""
SEED = 17


@dataclass(frozen=True)
class Sample:
    """Plans of a cluster, with the median and the standard error of their steps."""

    name: str
    question: Question
    plans: list[Plan]
    steps_s: list[float]
    errors_s: list[float]


Measure = Callable[[Cluster, Sequence[Plan], Profile], list[list[float]]]
"""Function that measures steps of each plan."""


def on_ranks(cluster: Cluster, plans: Sequence[Plan], profile: Profile) -> list[list[float]]:
    """Measure on a testbed's real ranks, whose computation sleeps; needs root."""
    return steps(cluster, plans, profile, STEPS)


def message_by_message(cluster: Cluster, plans: Sequence[Plan], profile: Profile) -> list[list[float]]:
    """Measure in the flow simulator, on the testbed's links."""
    return [[predict(plan, cluster, profile, fidelity="flow", shaped=True).step_s] for plan in plans]


def samples(measure: Measure, names: Sequence[str] = tuple(CLUSTERS)) -> list[Sample]:
    """Measure PLANS different plans of the sampler on each cluster, each with another model."""
    found = []
    for at, name in enumerate(names):
        cluster, profile = CLUSTERS[name], list(MODELS.values())[at % len(MODELS)]
        question = question_of(cluster, profile, len(cluster.hosts), ROUNDED, None)
        templates = all_reduces(question.solved(0).uniform())
        drawn = {plan.buckets: plan for plan in islice(sampled(question, templates, SEED), 2 * PLANS)}
        plans = list(drawn.values())[:PLANS]
        times = measure(cluster, plans, profile)
        errors = [statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else 0.0 for each in times]
        found.append(Sample(name, question, plans, [statistics.median(each) for each in times], errors))
    return found
