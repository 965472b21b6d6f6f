"""`uneven-model`: models of uneven layers on four networks: never below the best builder, and clearly better if possible."""

from __future__ import annotations

from collections.abc import Iterator

from benches.emulated import hosts
from benches.row import Row
from benches.strategies.cases import CLUSTERS, GIGABIT, MEGABIT, MODELS
from benches.strategies.compared import compared
from hocket.artefacts.cluster import Cluster, Host
from hocket.tools.report.quantity import TIMES

FLOW_BIT_PER_S = 250 * MEGABIT
WITHIN_HOST_BIT_PER_S = 4e10

LIMITED = Cluster(
    hosts=tuple(
        Host(name=f"h{at}", bandwidth_bit_per_s=GIGABIT, flow_bit_per_s=FLOW_BIT_PER_S) for at in range(4)
    )
)
"""Cluster on which one connection carries a quarter of a host's link."""

LIMITED_AS_MEASURED = Cluster(
    hosts=tuple(Host(name=f"h{at}", bandwidth_bit_per_s=GIGABIT) for at in range(4)),
    bandwidth_bit_per_s=tuple(
        tuple(WITHIN_HOST_BIT_PER_S if i == j else FLOW_BIT_PER_S for j in range(4)) for i in range(4)
    ),
)
"""LIMITED as found by a probe with one connection per pair."""

CARDS = Cluster(
    hosts=tuple(
        Host(name=f"h{at}", bandwidth_bit_per_s=600 * MEGABIT, cards_bit_per_s=(300 * MEGABIT, 300 * MEGABIT))
        for at in range(4)
    )
)

NETWORKS: dict[str, tuple[Cluster, Cluster]] = {
    "star": (hosts([200 * MEGABIT] * 4),) * 2,
    "racks": (CLUSTERS["racks"],) * 2,
    "two cards": (CARDS,) * 2,
    "limited flows": (LIMITED_AS_MEASURED, LIMITED),
}
"""Clusters for planning, and for emulation."""

SHAPES = {"like VGG": "uneven", "like ResNet-50": "small", "transformer": "blocks"}

NEVER_BELOW, BETTER, BETTER_IN = 0.98, 1.15, 5
UNSPLIT = 1.5
"""Least ratio of a ring's step to the plan's if flows are limited."""


def measured() -> Iterator[Row]:
    """Ratio of the best builder's step to the plan's in each case, and to the bound: at a ratio of 1, no plan is better."""
    better = possible = 0
    for network, (said, emulated) in NETWORKS.items():
        for shape, model in SHAPES.items():
            found = compared(said, MODELS[model], emulated=emulated)
            where = f"{network}, {shape}"
            better += found.ratio >= BETTER
            possible += found.allowed >= BETTER
            yield Row(
                name=where,
                what=f"step of the best builder ({found.best}) over that of {found.plan.label}",
                value=found.ratio,
                target=NEVER_BELOW,
                least=True,
                unit=TIMES,
            )
            yield Row(
                name=where, what=f"{found.best} as predicted, over the bound", value=found.allowed, unit=TIMES
            )
            if network == "limited flows" and "ring" in found.builders_s:
                yield Row(
                    name=where,
                    what="step of a ring over that of the plan",
                    value=found.builders_s["ring"] / found.step_s,
                    target=UNSPLIT,
                    least=True,
                    unit=TIMES,
                )
    yield Row(
        name="uneven-model",
        what=f"cases in which the best builder is predicted to take {BETTER} times as long as the bound",
        value=possible,
    )
    yield Row(
        name="uneven-model",
        what=f"cases of {len(NETWORKS) * len(SHAPES)} that are {BETTER} times as fast as the best builder",
        value=better,
        target=BETTER_IN,
        least=True,
    )
