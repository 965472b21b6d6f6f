"""Plan of `hocket plan` where a rank of the profile comes later than all others: one by which it joins last, if that is faster."""

from __future__ import annotations

import msgspec

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import AllReduce, Candidate, Plan
from hocket.artefacts.profile import Profile
from hocket.planning.late import Late, candidates, late_of, predicted_s
from hocket.planning.reason import seconds
from hocket.planning.search import Considered
from hocket.tools.simulation import flow
from hocket.tools.simulation.conditions import Conditions
from hocket.tools.simulation.networks import from_cluster
from hocket.tools.simulation.shortlist import FASTER, simple


def chosen(plan: Plan, considered: Considered, cluster: Cluster, profile: Profile) -> Plan:
    """Return the plan, or one by which the profile's last rank joins last, with its evidence, if it is simulated to be faster among
    ranks that compute as long as those of the profile."""
    late = late_of(profile, plan.world)
    if late is None or len(plan.workers) < plan.world:
        return plan
    base = plan if all(isinstance(each.route, AllReduce) for each in plan.buckets) else simple(considered)
    others = candidates(base, cluster, late)
    if not others:
        return plan
    steps_s = {each.label: step_s(each, cluster, profile, late) for each in (plan, base, *others)}
    best = min(others, key=lambda each: steps_s[each.label])
    if steps_s[best.label] >= FASTER * min(steps_s[plan.label], steps_s[base.label]):
        return plan
    graph = considered.question.graph
    scored = {each.label: predicted_s(each, graph, profile, late) for each in (base, *others)}
    found = tuple(
        Candidate(label=label, predicted_step_s=predicted, simulated_step_s=steps_s[label])
        for label, predicted in scored.items()
    )
    reason = (
        f"Rank {late.rank} ends its backward {seconds(late.late_s)} after all others: they reduce what they can without it, and "
        f"it joins last. A step is simulated to take {seconds(steps_s[best.label])}, and {seconds(steps_s[plan.label])} by "
        f"{plan.label}."
    )
    evidence = msgspec.structs.replace(
        plan.evidence,
        predicted_step_s=scored[best.label],
        bound_step_s=None,
        candidates=found,
        sensitivity=(),
    )
    return msgspec.structs.replace(best, reason=reason, evidence=evidence)


def step_s(plan: Plan, cluster: Cluster, profile: Profile, late: Late) -> float:
    """Return the simulated time of a step of ranks that compute at their own pace."""
    conditions = Conditions(paces=late.paces)
    network = from_cluster(cluster, plan.world)
    return flow.predict(plan, network, profile, conditions=conditions).outcome.step_s
