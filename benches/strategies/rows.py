"""Rows of `python -m benches strategies`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from functools import partial

from benches.autopilot.jobs import train
from benches.row import Row
from benches.strategies import (
    built,
    exhaustive,
    few_bits,
    idle_hosts,
    joint,
    noisy,
    paper,
    ranking,
    sparse,
    switching,
    transfer,
    uneven,
)
from benches.strategies.cases import CLUSTERS, MODELS
from benches.strategies.compared import TURNS, compared
from benches.strategies.in_training import searched
from benches.strategies.sampled import message_by_message, on_ranks
from hocket.tools.report.quantity import TIMES

TRAINED = {"hocket": 40, "gloo": 20}
"""Steps of a training, the first of which the job needs to find its plan."""
TARGET = 0.98
"""Least ratio in every case, which allows for noise."""
TARGETS = {("slow host", "even"): 1.35}
"""Targets where the network allows more. With a slow host, owners need its gradient sent up and the values sent down once; in a
ring it passes on half as much again."""


def measured(cluster: str, model: str) -> Iterator[Row]:
    """Ratio of the fastest builder's step to the planner's, and both predictions."""
    found = compared(CLUSTERS[cluster], MODELS[model])
    where = f"{cluster}, {model}"
    yield Row(
        name=where,
        what=f"step of the best builder ({found.best}) over that of {found.plan.label}",
        value=found.ratio,
        target=TARGETS.get((cluster, model), TARGET),
        least=True,
        unit=TIMES,
    )
    yield Row(name=where, what="step", value=found.step_s * 1e3, unit="ms")
    yield Row(name=where, what="step as predicted", value=found.plan.predicted_step_s * 1e3, unit="ms")
    gap = found.plan.evidence.gap
    if gap is not None:
        yield Row(name=where, what="prediction above the bound", value=100 * gap, unit="%")


def training() -> Iterator[Row]:
    """The demo's model on the cluster with a slow host, with Hocket's two lines alone and with DDP on Gloo."""
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
    "uneven-model": uneven.measured,
    "builders": built.measured,
    "exhaustive": exhaustive.measured,
    "ranking": partial(ranking.predictions, on_ranks),
    "ranking-simulated": partial(ranking.predictions, message_by_message),
    "ranking-network": ranking.contender,
    "search": noisy.measured,
    "paper-clusters": paper.measured,
    "training": training,
    "in-training": searched,
    "idle-hosts": idle_hosts.measured,
    "few-bits": few_bits.measured,
    "transfer": transfer.measured,
    "switching": switching.measured,
    "joint": joint.measured,
    "sparse": sparse.measured,
}
