"""The rows of `python -m benches strategies`: one plan of the planner against all builders', in turns on one testbed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial

from benches.autopilot.jobs import train
from benches.predict.measure import steps
from benches.row import Row
from benches.strategies.cases import CLUSTERS, MODELS, builders
from hocket.planning.search import considered
from hocket.report.quantity import TIMES
from hocket.simulation import shortlist

TURNS, STEPS = 3, 4
"""How often each plan runs, and its steps each time; the median of all counts."""
TRAINED = {"hocket": 40, "gloo": 20}
"""Steps of a training: the job finds its plan in the first ones."""
TARGET = 0.98
"""Of every case: a plan may lose so much to a builder's by noise."""
TARGETS = {("slow host", "even"): 1.35}
"""Where the network allows more: a slow host needs its gradient to go up and the values to come down once, a ring has it pass on
half as much again."""


def measured(cluster: str, model: str) -> Iterator[Row]:
    """The fastest builder's step over the planner's, and both as predicted."""
    network, profile = CLUSTERS[cluster], MODELS[model]
    found = considered(network, profile, len(network.hosts))
    plan = shortlist.chosen(found, network, profile)
    others = builders(network, profile, found)
    names = ["planner", *others]
    times = steps(network, [plan, *others.values()] * TURNS, profile, STEPS)
    median_s = {
        name: statistics.median(step_s for turn in times[at :: len(names)] for step_s in turn)
        for at, name in enumerate(names)
    }
    best = min(others, key=lambda name: median_s[name])
    where = f"{cluster}, {model}"
    yield Row(
        name=where,
        what=f"step of the best builder ({best}) over that of {plan.label}",
        value=median_s[best] / median_s["planner"],
        target=TARGETS.get((cluster, model), TARGET),
        least=True,
        unit=TIMES,
    )
    yield Row(name=where, what="step", value=median_s["planner"] * 1e3, unit="ms")
    yield Row(name=where, what="step as predicted", value=plan.predicted_step_s * 1e3, unit="ms")
    gap = plan.evidence.gap
    if gap is not None:
        yield Row(name=where, what="prediction above the bound", value=100 * gap, unit="%")


def training() -> Iterator[Row]:
    """The demo's model on the cluster with a slow host, by the two lines alone and with DDP on Gloo."""
    found: dict[str, list[float]] = {"hocket": [], "gloo": []}
    for _ in range(TURNS):
        for contender, steps_s in found.items():
            steps_s.append(train(CLUSTERS["slow host"], contender, "transformer", TRAINED[contender]).last_s)
    yield Row(
        name="training",
        what="slow host, two lines: DDP's step over Hocket's",
        value=statistics.median(found["gloo"]) / statistics.median(found["hocket"]),
        target=1.0,
        least=True,
        unit=TIMES,
    )


ROWS: dict[str, Callable[[], Iterator[Row]]] = {
    "slow-host": partial(measured, "slow host", "even"),
    **{
        f"{cluster}, {model}": partial(measured, cluster, model)
        for cluster in CLUSTERS
        for model in MODELS
        if (cluster, model) not in TARGETS
    },
    "training": training,
}
