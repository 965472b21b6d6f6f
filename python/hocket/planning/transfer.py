"""Experience of other jobs applied to this one: their best plans, remade by the same rules, and their corrections of predictions.

A plan goes to another cluster by its rules (`rescaled.py`). For another model, only the route of most of its bytes and the size of
buckets are kept. Its prediction is computed anew for this job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from hocket.artefacts.belief import Belief
from hocket.artefacts.chunks import chunk_bytes
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.experience import Experience, Job
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.needs import needs_of, unkept
from hocket.artefacts.network import Network
from hocket.artefacts.plan import AllReduce, Bucket, Evidence, Gathered, Owned, Plan, Traced
from hocket.artefacts.profile import Gradient as ProfiledGradient
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise
from hocket.artefacts.tuning import NetworkShape
from hocket.errors import UsageError
from hocket.planning import rows
from hocket.planning.buckets import bucket_of, sizes_of
from hocket.planning.learned import Trial, learned
from hocket.planning.links import link_graph
from hocket.planning.order import placement
from hocket.planning.question import SEED, Question, question_of
from hocket.planning.rescaled import rescaled
from hocket.planning.search import neutral_profile
from hocket.policy.bucketing import bucketed
from hocket.policy.selection import distance, network_shape
from hocket.policy.topology import Topology

NEAREST = 4
"""Number of jobs whose best plans are considered."""

ALIKE = 1.25
"""Ratio up to which two rates may belong to the same link."""

KINDS = ("links of hosts", "trunks", "paths", "memories")
"""Names in beliefs that mean the same on every cluster."""


@dataclass(frozen=True)
class Transferred:
    """Experience that is of use here. `refused`: sentences on plans whose rules have no meaning here."""

    plans: tuple[Plan, ...]
    belief: Belief
    refused: tuple[str, ...]


def transferred(
    experiences: Iterable[Experience], cluster: Cluster, question: Question, promise: Promise
) -> Transferred:
    """Return the best plan of each job on the nearest clusters, remade for the cluster and the model of `question`, with its
    prediction, the fastest first; and the nearest job's belief."""
    profile, world = question.profile, len(question.graph.hosts)
    near = nearest(experiences, cluster, world)
    found: dict[object, Plan] = {}
    refused = []
    for each in near[:NEAREST]:
        kept = [trial for trial in each.trials if not any(unkept(promise, needs_of(trial.plan)))]
        if not kept:
            continue
        best = min(kept, key=lambda trial: trial.measured_s).plan
        try:
            plan = brought(best, each.job.cluster, cluster, world, profile)
        except UsageError as error:
            refused.append(f"{best.label}: {error.summary}")
            continue
        evidence = Evidence(predicted_step_s=question.predicted(plan).step_s)
        found.setdefault(plan.buckets, msgspec.structs.replace(plan, evidence=evidence))
    plans = sorted(found.values(), key=lambda plan: plan.predicted_step_s)
    return Transferred(tuple(plans), _believed(near, cluster, world), tuple(refused))


def with_experience(plan: Plan, found: Transferred, question: Question) -> Plan:
    """The fastest among the plan and other jobs' plans, on links with the believed slowness."""
    known = learned(question, (), found.belief)
    plans = [plan, *found.plans]
    steps_s = known.steps_s(plans, known.draws(1, SEED))[0]
    return min(zip(steps_s, range(len(plans)), plans, strict=True))[2]


def nearest(experiences: Iterable[Experience], cluster: Cluster, world: int) -> list[Experience]:
    """Experiences with trials, the most similar cluster first; of equals, the latest."""
    shape = _shape(cluster, world)
    tried = [each for each in experiences if each.trials]
    tried.reverse()
    return sorted(tried, key=lambda each: distance(_shape(each.job.cluster, _world(each.job)), shape))


def brought(plan: Plan, made_for: Cluster | None, cluster: Cluster, world: int, profile: Profile) -> Plan:
    """Adapt a plan of another job to the first `world` slots of the cluster, and to the model.

    UsageError, with the rule's name, if one of its rules has no meaning there.
    """
    hosts = None
    if made_for is not None:
        hosts = [made_for.hosts[at].name for at in placement(made_for, plan.world)]
    moved = rescaled(plan, world, cluster, made_for=made_for, hosts=hosts)
    if _variables(moved) != {each.name: each.elements for each in profile.gradients}:
        moved = _of_model(moved, profile)
    moved = rows.with_rows(moved, profile.gradients)
    chunk = chunk_bytes(link_graph(cluster, world).slowest_bit_per_s)
    buckets = tuple(
        msgspec.structs.replace(each, chunk_bytes=chunk) if _in_chunks(each.route) else each
        for each in moved.buckets
    )
    return msgspec.structs.replace(moved, buckets=buckets, label=_label(plan.label))


def _of_model(plan: Plan, profile: Profile) -> Plan:
    """Put all gradients of a model on the route of most of the plan's bytes, in buckets of its usual size. The model decides which
    gradients travel as rows, not the plan: if the plan has only rows, its dense gradients use a ring, and so do those of
    element types that its policies have not met."""
    carried: dict[bytes, float] = {}
    templates: dict[bytes, Bucket] = {}
    reduced = [each for each in plan.buckets if not isinstance(each.route, Gathered)]
    ring = AllReduce(algorithm="ring")
    plain = reduced or [msgspec.structs.replace(each, route=ring) for each in plan.buckets]
    met = {each.dtype for each in plain if isinstance(each.route, Traced)}
    for each in plain:
        template = msgspec.structs.replace(each, parts=(), elements=0, dtype="", priority=0)
        key = msgspec.json.encode(template)
        templates[key] = template
        carried[key] = carried.get(key, 0.0) + each.elements * ITEM_BYTES[each.dtype]
    template = templates[max(carried, key=lambda key: carried[key])]
    size_bytes = max(each.elements * ITEM_BYTES[each.dtype] for each in plain)
    gradients = [Gradient(each.name, each.shape, each.dtype) for each in reversed(profile.gradients)]
    other = msgspec.structs.replace(template, route=ring) if isinstance(template.route, Traced) else template
    buckets = tuple(
        bucket_of(
            [(each, 0, each.elements) for each in own], template if own[0].dtype in met else other, priority
        )
        for priority, own in enumerate(bucketed(gradients, size_bytes))
    )
    return msgspec.structs.replace(plan, buckets=buckets)


def model_of(plan: Plan) -> Profile:
    """A neutral profile of the plan's own variables, flat or in the rows in which they travel, for use without a profile."""
    of = {name: each for each in plan.buckets for name in each.variables}
    return neutral_profile(_gradient(name, elements, of[name]) for name, elements in _variables(plan).items())


def _gradient(name: str, elements: int, bucket: Bucket) -> ProfiledGradient:
    route = bucket.route
    gathered = isinstance(route, Gathered)
    shape = (
        (elements // route.row_elements, route.row_elements) if isinstance(route, Gathered) else (elements,)
    )
    touched = route.rows if isinstance(route, Gathered) else None
    return ProfiledGradient(
        name=name,
        shape=shape,
        dtype=bucket.dtype,
        ready_s=0.0,
        needed_s=0.0,
        touched=touched,
        sparse=gathered,
    )


def _variables(plan: Plan) -> dict[str, int]:
    """Elements by name."""
    found: Counter[str] = Counter()
    for bucket in plan.buckets:
        for name, elements in sizes_of(bucket):
            found[name] += elements
    return dict(found)


def _in_chunks(route: object) -> bool:
    return isinstance(route, Owned) or (isinstance(route, AllReduce) and route.algorithm != "in_place")


def _label(label: str) -> str:
    prefix = "experience: "
    return label if label.startswith(prefix) else prefix + label


def _believed(near: Sequence[Experience], cluster: Cluster, world: int) -> Belief:
    """Belief of the nearest job: about links by name on the same cluster, else about kinds of links."""
    if not near:
        return Belief()
    job = near[0].job
    question = question_of(job.cluster, job.profile, _world(job), Promise(job.promise), None)
    trials = [Trial(each.plan, each.measured_s, each.error_s) for each in near[0].trials]
    found = learned(question, trials).belief
    if _same_links(link_graph(job.cluster, _world(job)), link_graph(cluster, world)):
        return found
    links = {name: each for name, each in found.links.items() if name in KINDS}
    return Belief(links=links, weights=found.weights)


def _same_links(one: Network, other: Network) -> bool:
    """Return whether links have the same names, and rates within measurement error."""
    rates, others = ({link.name: link.bit_per_s for link in graph.links} for graph in (one, other))
    return rates.keys() == others.keys() and all(
        1 / ALIKE <= rates[name] / others[name] <= ALIKE for name in rates
    )


def _world(job: Job) -> int:
    return sum(host.slots for host in job.cluster.hosts)


def _shape(cluster: Cluster, world: int) -> NetworkShape:
    hosts = [cluster.hosts[at].name for at in placement(cluster, world)]
    return network_shape(range(world), Topology.of(hosts, cluster))
