"""Plans of `hocket plan` whose large variables travel in few bits, where the promise lets policies round: alternatives to the plan,
of which one takes its place if it is enough faster.

What a codec does to learning is not known beforehand. So one that leaves out more has to be worth more, and none is chosen for what
computation hides anyway.
"""

from __future__ import annotations

import msgspec

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Candidate, Plan
from hocket.planning.asked import asked_for
from hocket.planning.built import built
from hocket.planning.reason import seconds
from hocket.planning.search import Considered
from hocket.tools.simulation import flow
from hocket.tools.simulation.networks import from_cluster

WORTH = {"int8": 0.9, "int4": 0.8, "top_k": 0.5}
"""Share of the time of plans that leave out less, up to which a codec is chosen, those that leave out less first."""

RANKS_MAX = 16
"""Number of ranks up to which policies are traced and simulated: all send to all."""


def chosen(plan: Plan, considered: Considered, cluster: Cluster) -> Plan:
    """Return the plan, or one with a codec, with all of these among the candidates of its evidence."""
    question = considered.question
    ranks = len(question.graph.hosts)
    between = bool(question.graph.remote_pairs()) and question.workers == ranks <= RANKS_MAX
    if question.promise.loss != "any" or not between:
        return plan
    asked = [asked_for(f"coded,codec={codec}") for codec in WORTH]
    network = from_cluster(cluster, ranks)

    def step_s(each: Plan) -> float:
        return flow.predict(each, network, question.profile).outcome.step_s

    others = [each for _, each in built(question, asked)]
    listed = [
        Candidate(label=each.label, predicted_step_s=each.predicted_step_s, simulated_step_s=step_s(each))
        for each in others
    ]
    # Merged, late and local turns are predicted over a period; all that is in step is simulated.
    turns = bool(plan.schedule.turns)
    given_s = plan.predicted_step_s if turns else step_s(plan)
    best, best_s = plan, given_s
    for each, candidate, worth in zip(others, listed, WORTH.values(), strict=True):
        each_s = each.predicted_step_s if turns else candidate.simulated_step_s or 0.0
        if each_s <= worth * best_s:
            best, best_s = each, each_s
    evidence = msgspec.structs.replace(plan.evidence, candidates=(*plan.evidence.candidates, *listed))
    if best is plan:
        words = (
            ""
            if turns
            else " No codec of few bits makes a step so much shorter that it is worth what it leaves out."
        )
        return msgspec.structs.replace(plan, evidence=evidence, reason=plan.reason + words)
    evidence = msgspec.structs.replace(
        evidence, predicted_step_s=best.predicted_step_s, bound_step_s=None, sensitivity=(), checks=()
    )
    reason = (
        f"By {best.label} a step is expected to take {seconds(best_s)}, and {seconds(given_s)} by {plan.label}. What a codec "
        "leaves out of one step comes with a later one; what that does to learning is not known beforehand. Another plan of the "
        "table is taken by `--builder` and its name."
    )
    return msgspec.structs.replace(best, reason=reason, evidence=evidence)
