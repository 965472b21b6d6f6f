"""Plan of `hocket plan`: of the plans that the closed form ranks first, the one that is fastest message by message.

The closed form scores tens of thousands of plans. It sums the work of links and engines; it does not see how messages wait for one
another. So the flow simulator runs the best few, and its choice counts where the two differ by more than they usually do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate

import msgspec

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.local import every
from hocket.artefacts.network import Network
from hocket.artefacts.plan import AllReduce, Plan, Route, Sensitivity
from hocket.artefacts.profile import Profile
from hocket.planning.reason import seconds
from hocket.planning.search import Considered
from hocket.tools.simulation import flow
from hocket.tools.simulation.networks import from_cluster
from hocket.tools.simulation.tasks import Here, Tasks

PLANS_MAX = 64
"""Limit of simulated plans."""
WITHIN = 1.05
"""Ratio to the shortest prediction up to which plans are simulated: the closed form's median error is 3 %
(`hocket.planning.cost`)."""
OTHERS_WITHIN, OTHERS_MAX = 1.3, 12
"""Ratio and limit of plans of other routes that are simulated, too, although they are predicted to take longer: predictions know
nothing of owners' queues."""
MESSAGES_MAX = 1_000_000
"""Limit of messages of all simulated plans together: some seconds."""
FASTER = 0.99
"""Share of the first plan's simulated time that another one may take at most to be chosen in its place."""

ALONE_RANKS_MAX = 64
"""Number of ranks up to which plans of steps alone are simulated: there, one takes a second at most."""

OFF = 0.2
"""Relative error of rates, for the sensitivity."""
COMPARED_MAX = 8
"""Limit of plans that are predicted again on networks of other rates."""


def chosen(considered: Considered, cluster: Cluster, profile: Profile, tasks: Tasks | None = None) -> Plan:
    """Return the plan, with its evidence: simulated times, and how sensitive it is to rates.

    Where a tuning corrects predictions, measurements count, and nothing is simulated. `tasks`: where simulations run; default: in
    this process.
    """
    plain = simple(considered)
    plans = _near(considered, plain)
    measured = considered.question.correction is not None
    simulated = [] if measured else _simulated(plans, cluster, profile, tasks or Here())
    best = plans[0]
    if simulated:
        fastest = min(range(len(simulated)), key=lambda at: round(simulated[at], 6))
        least = FASTER if simulated[0] <= simulated[plans.index(plain)] else 1.0
        if simulated[fastest] < least * simulated[0]:
            best = plans[fastest]
    by_label = {plan.label: step_s for plan, step_s in zip(plans, simulated, strict=False)}
    plan = considered.explained(best)
    candidates = tuple(
        msgspec.structs.replace(each, simulated_step_s=by_label.get(each.label))
        for each in plan.evidence.candidates
    )
    evidence = msgspec.structs.replace(plan.evidence, candidates=candidates)
    why = plan.reason
    if best is not plans[0]:
        why += (
            f" {plans[0].label} is predicted to take {seconds(plans[0].predicted_step_s)}, but simulated message by message it "
            f"takes {seconds(simulated[0])} and this plan {seconds(by_label[best.label])}."
        )
    return with_sensitivity(msgspec.structs.replace(plan, evidence=evidence, reason=why), considered)


def alone_on(cluster: Cluster, ranks: int, profile: Profile) -> Callable[[Plan], float] | None:
    """Return a function that simulates plans of steps alone, message by message; None: there are too many ranks."""
    if ranks > ALONE_RANKS_MAX:
        return None
    network = from_cluster(cluster, ranks)

    def simulated_s(plan: Plan) -> float:
        # In the first period, nothing is under way from the one before.
        return flow.predict(plan, network, profile, steps=2 * every(plan.schedule)).outcome.step_s

    return simulated_s


def with_sensitivity(plan: Plan, considered: Considered) -> Plan:
    """Return the plan with its times where rates are off, and whether another one is faster then."""
    others = [plan, *considered.fastest[:COMPARED_MAX], considered.uniform[0]]
    found = []
    for what, factor, graph in _networks(considered.question.graph):
        question = dataclasses.replace(considered.question, graph=graph)
        steps = [(question.predicted(each).step_s, each.label) for each in others]
        best_s, label = min(steps, key=lambda step: round(step[0], 6))
        found.append(
            Sensitivity(links=what, factor=factor, step_s=steps[0][0], best_step_s=best_s, best=label)
        )
    evidence = msgspec.structs.replace(plan.evidence, sensitivity=tuple(found))
    return msgspec.structs.replace(plan, evidence=evidence, reason=plan.reason + _said(found))


def simple(considered: Considered) -> Plan:
    """Return the best plan with one all-reduce for all buckets, or with one route where no bucket is reduced: all travel as
    rows."""
    reduced = [each for each in considered.uniform if isinstance(each.buckets[0].route, AllReduce)]
    return min(reduced or considered.uniform, key=lambda each: round(each.predicted_step_s, 6))


def _near(considered: Considered, plain: Plan) -> list[Plan]:
    """Return the best plan, the simple one, and those that are predicted to be nearly as fast as the best."""
    best = considered.best
    near = [each for each in considered.fastest if each.predicted_step_s <= WITHIN * best.predicted_step_s]
    first = [best] if best == plain else [best, plain]
    others = _different(considered.fastest, OTHERS_WITHIN * best.predicted_step_s)
    found = {each.buckets: each for each in first}
    for each in (*others[:OTHERS_MAX], *near):
        found.setdefault(each.buckets, each)
    return list(found.values())[:PLANS_MAX]


def _different(plans: Sequence[Plan], within_s: float) -> list[Plan]:
    """Return the first of the plans with the same routes, whatever their buckets."""
    found: dict[frozenset[tuple[Route, tuple[int, ...]]], Plan] = {}
    for plan in plans:
        if plan.predicted_step_s <= within_s:
            found.setdefault(frozenset((each.route, each.order) for each in plan.buckets), plan)
    return list(found.values())


def _simulated(plans: Sequence[Plan], cluster: Cluster, profile: Profile, tasks: Tasks) -> list[float]:
    """Return the steps of the first plans; none where there is nothing to choose from."""
    # Plans without helpers have only the workers.
    networks = {world: from_cluster(cluster, world) for world in {plan.world for plan in plans}}
    messages = list(accumulate(map(_messages, plans)))
    first = [plan for plan, so_far in zip(plans, messages, strict=True) if so_far <= MESSAGES_MAX]
    return tasks.map(partial(_step_s, networks, profile), first) if len(first) > 1 else []


def _step_s(networks: Mapping[int, Network], profile: Profile, plan: Plan) -> float:
    return flow.predict(plan, networks[plan.world], profile).outcome.step_s


def _messages(plan: Plan) -> float:
    """Estimate messages, about a ring's: of each bucket twice all chunks, and at least twice one from every rank in every step."""
    return sum(
        2.0 * plan.world * max(plan.world, each.elements * ITEM_BYTES[each.dtype] / each.chunk_bytes)
        for each in plan.buckets
    )


def _networks(graph: Network) -> list[tuple[str, float, Network]]:
    trunks = {at for at, link in enumerate(graph.links) if link.name.startswith("trunk")}
    kinds = {"links of hosts": set(range(len(graph.links))) - trunks, "trunks": trunks}
    return [
        (what, factor, graph.slowed(dict.fromkeys(at, 1 / factor)))
        for what, at in kinds.items()
        if at
        for factor in (1 - OFF, 1 + OFF)
    ]


def _said(found: Sequence[Sensitivity]) -> str:
    if not found:
        return ""
    worst = max(found, key=lambda each: each.step_s)
    lost = max(found, key=lambda each: each.step_s / each.best_step_s)
    text = f" With rates {OFF:.0%} off it takes up to {seconds(worst.step_s)} ({worst.links} slower)"
    if lost.step_s <= lost.best_step_s * 1.005:
        return f"{text}, and stays the fastest."
    way = "slower" if lost.factor < 1 else "faster"
    return f"{text}; with {lost.links} {way}, {lost.best} would take {1 - lost.best_step_s / lost.step_s:.1%} less."
