"""Plans of `hocket plan` in which hosts of the cluster file that train nothing own parts, as parameter servers do: they are shown,
and never chosen, since nobody asked for those hosts."""

from __future__ import annotations

import msgspec

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Candidate, Plan
from hocket.artefacts.tuning import Tuning
from hocket.planning import search
from hocket.planning.order import placement
from hocket.planning.reason import seconds
from hocket.planning.search import Considered
from hocket.tools.simulation import shortlist

FASTER = 0.95
"""Share of a step's time that a plan with helpers may take at most to be shown."""

RANKS_MAX = 64
"""Number of ranks, with helpers, up to which such plans are looked for: that takes as long as the plan itself."""


def shown(plan: Plan, considered: Considered, cluster: Cluster, tuning: Tuning | None) -> Plan:
    """Return the plan, and among its candidates the fastest one with helpers, if that is faster."""
    ranks = len(considered.question.graph.hosts)
    spare = min(sum(host.slots for host in cluster.hosts) - ranks, ranks)
    profile, promise = considered.question.profile, considered.question.promise
    if spare < 1 or promise.turns or ranks + spare > RANKS_MAX or considered.question.workers < ranks:
        return plan
    hosts = placement(cluster, ranks + spare)
    if set(hosts[ranks:]) <= set(hosts[:ranks]):
        return plan
    asked = search.considered(cluster, profile, ranks + spare, promise=promise, tuning=tuning, helpers=spare)
    best = shortlist.chosen(asked, cluster, profile)
    given, found = _candidate(plan), _candidate(best)
    if best.world == ranks or _step_s(found) > FASTER * _step_s(given):
        return plan
    found = msgspec.structs.replace(found, label=f"{found.label}, {spare} helpers")
    evidence = msgspec.structs.replace(plan.evidence, candidates=(*plan.evidence.candidates, found))
    words = f" With hosts that train nothing as owners, a step is expected to take {seconds(_step_s(found))}: `--helpers {spare}`."
    return msgspec.structs.replace(plan, evidence=evidence, reason=plan.reason + words)


def _candidate(plan: Plan) -> Candidate:
    """Return the candidate that a plan is, with its simulated time if it has one."""
    known = (each for each in plan.evidence.candidates if each.label == plan.label)
    return next(known, Candidate(label=plan.label, predicted_step_s=plan.predicted_step_s))


def _step_s(candidate: Candidate) -> float:
    return candidate.simulated_step_s or candidate.predicted_step_s
