"""Three clusters on the testbed: the planner's plan against ten others, in turns.

Racks with unequal trunks, hosts with different numbers of cards, hosts that only help. Seven of the others are the planner's own
candidates, the fastest in simulation; three come from searches independent of the planner (`rerouting`).
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator

from benches.drawn.clusters import MEGABIT, Case
from benches.drawn.rerouting import Rerouting
from benches.emulated import hosts
from benches.orders.clusters import uneven_trunks
from benches.predict.measure import steps
from benches.row import Row
from benches.strategies.cases import MODELS
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.plan import Plan
from hocket.planning.search import considered
from hocket.tools.simulation import flow, shortlist
from hocket.tools.simulation.networks import from_cluster

CARD_BIT_PER_S = 150 * MEGABIT
CARDS = (2, 2, 1, 2)
OWN, REROUTED = 7, 3
"""Numbers of the other plans, by origin."""
EVALUATIONS = 300
TURNS, STEPS = 3, 4
REGRET, ERROR = 3.0, 10.0
"""Targets in percent: excess over the best of the others, and error of the prediction."""


def cards() -> Cluster:
    """Cluster of hosts with one card, or two of equal rate."""
    return Cluster(
        hosts=tuple(
            Host(
                name=f"h{at}",
                bandwidth_bit_per_s=count * CARD_BIT_PER_S,
                cards_bit_per_s=(CARD_BIT_PER_S,) * count if count > 1 else (),
            )
            for at, count in enumerate(CARDS)
        )
    )


CASES: dict[str, Case] = {
    "unequal trunks": Case("unequal trunks", uneven_trunks(), MODELS["even"], helpers=0),
    "unequal cards": Case("unequal cards", cards(), MODELS["even"], helpers=0),
    "helpers": Case("helpers", hosts([200 * MEGABIT] * 6), MODELS["even"], helpers=2),
}


def plans(on: Case) -> tuple[Plan, list[Plan]]:
    """The planner's plan, and the others."""
    networks = {world: from_cluster(on.cluster, world) for world in (on.world - on.helpers, on.world)}

    def step_s(plan: Plan) -> float:
        return flow.predict(plan, networks[plan.world], on.profile).outcome.step_s

    asked = considered(on.cluster, on.profile, on.world, helpers=on.helpers)
    chosen = shortlist.chosen(asked, on.cluster, on.profile)
    own = _different([plan for plan in asked.fastest if plan.buckets != chosen.buckets], step_s)[:OWN]
    rerouted = [Rerouting(on, step_s, seed).best(EVALUATIONS, [])[0] for seed in range(REROUTED)]
    return chosen, [*own, *rerouted]


def measured(name: str) -> Iterator[Row]:
    """Medians over all turns. PeerError, TestbedError."""
    on = CASES[name]
    chosen, others = plans(on)
    each = [chosen, *others]
    times = steps(on.cluster, each * TURNS, on.profile, STEPS)
    medians_s = [
        statistics.median(step_s for turn in times[at :: len(each)] for step_s in turn)
        for at in range(len(each))
    ]
    own_s, others_s = medians_s[0], medians_s[1:]
    yield Row(
        name=name,
        what=f"step of {chosen.label} above that of the best of {len(others)} others",
        value=100 * (own_s / min(others_s) - 1),
        target=REGRET,
        unit="%",
    )
    yield Row(
        name=name,
        what="its prediction off the measured step",
        value=100 * abs(chosen.predicted_step_s / own_s - 1),
        target=ERROR,
        unit="%",
    )
    for plan, median_s in zip(each, medians_s, strict=True):
        yield Row(name=name, what=f"step of {plan.label}", value=1e3 * median_s, unit="ms")


def _different(plans: list[Plan], step_s: Callable[[Plan], float]) -> list[Plan]:
    """The fastest plan of each kind of route, in simulation, then plans of the same kinds with other buckets."""
    simulated = sorted((step_s(plan), at) for at, plan in enumerate(plans))
    kinds: set[tuple[object, ...]] = set()
    first: list[Plan] = []
    more: list[Plan] = []
    for _, at in simulated:
        routes = tuple({(bucket.route, bucket.order): None for bucket in plans[at].buckets})
        (more if routes in kinds else first).append(plans[at])
        kinds.add(routes)
    return [*first, *more]
