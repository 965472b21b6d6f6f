"""What other jobs found out, for this one: their best plans, made by the same rules here, and what they taught of predictions.

A plan goes to another cluster by its rules (`rescaled.py`). To another model it goes as the route that most of its bytes took, with
buckets of the same size. Nothing is believed of it: its prediction is this job's.
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
from hocket.artefacts.plan import AllReduce, Bucket, Evidence, Gathered, Owned, Plan
from hocket.artefacts.profile import Gradient as ProfiledGradient
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise
from hocket.artefacts.tuning import NetworkShape
from hocket.errors import UsageError
from hocket.planning import rows
from hocket.planning.buckets import bucket_of, sizes_of
from hocket.planning.learned import Trial, learned
from hocket.planning.links import LinkGraph, link_graph
from hocket.planning.order import placement
from hocket.planning.question import SEED, Question, question_of
from hocket.planning.rescaled import rescaled
from hocket.planning.search import neutral_profile
from hocket.policy.bucketing import bucketed
from hocket.policy.selection import distance, network_shape
from hocket.policy.topology import Topology

NEAREST = 4
"""Jobs whose best plans are considered."""

ALIKE = 1.25
"""Rates of a link that differ by less, either way, are of the same link."""

KINDS = ("links of hosts", "trunks", "paths", "memories")
"""Names in beliefs that mean the same on every cluster."""


@dataclass(frozen=True)
class Transferred:
    """What of experience is of use here. `refused`: sentences, of plans whose rules have no meaning here."""

    plans: tuple[Plan, ...]
    belief: Belief
    refused: tuple[str, ...]


def transferred(
    experiences: Iterable[Experience], cluster: Cluster, question: Question, promise: Promise
) -> Transferred:
    """Of the jobs on the nearest clusters: the best plan of each, for the cluster and the model of `question`, with its prediction,
    the fastest first; and what the nearest one believes."""
    profile, world = question.profile, len(question.graph.hosts)
    near = nearest(experiences, cluster, world)
    found: dict[object, Plan] = {}
    refused = []
    for each in near[:NEAREST]:
        kept = [trial for trial in each.trials if promise.allows(trial.plan.promise)]
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
    """The fastest of the plan and of those of other jobs, on links as these believe them to be."""
    known = learned(question, (), found.belief)
    plans = [plan, *found.plans]
    steps_s = known.steps_s(plans, known.draws(1, SEED))[0]
    return min(zip(steps_s, range(len(plans)), plans, strict=True))[2]


def nearest(experiences: Iterable[Experience], cluster: Cluster, world: int) -> list[Experience]:
    """Those with trials, the most similar cluster first; of equals, the latest."""
    shape = _shape(cluster, world)
    tried = [each for each in experiences if each.trials]
    tried.reverse()
    return sorted(tried, key=lambda each: distance(_shape(each.job.cluster, _world(each.job)), shape))


def brought(plan: Plan, made_for: Cluster | None, cluster: Cluster, world: int, profile: Profile) -> Plan:
    """A plan of another job, for the first `world` slots of the cluster, and for the model.

    UsageError: one of its rules has no meaning there, by name.
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
    """All gradients of a model by the route of most of the plan's bytes, in buckets of its usual size. Which of them travel as rows
    is the model's, not the plan's: those of a plan that has nothing else go by a ring."""
    carried: dict[bytes, float] = {}
    templates: dict[bytes, Bucket] = {}
    reduced = [each for each in plan.buckets if not isinstance(each.route, Gathered)]
    ring = AllReduce(algorithm="ring")
    plain = reduced or [msgspec.structs.replace(each, route=ring) for each in plan.buckets]
    for each in plain:
        template = msgspec.structs.replace(each, parts=(), elements=0, dtype="", priority=0)
        key = msgspec.json.encode(template)
        templates[key] = template
        carried[key] = carried.get(key, 0.0) + each.elements * ITEM_BYTES[each.dtype]
    template = templates[max(carried, key=lambda key: carried[key])]
    size_bytes = max(each.elements * ITEM_BYTES[each.dtype] for each in plain)
    gradients = [Gradient(each.name, each.shape, each.dtype) for each in reversed(profile.gradients)]
    buckets = tuple(
        bucket_of([(each, 0, each.elements) for each in own], template, priority)
        for priority, own in enumerate(bucketed(gradients, size_bytes))
    )
    return msgspec.structs.replace(plan, buckets=buckets)


def model_of(plan: Plan) -> Profile:
    """A neutral profile of the plan's own variables, as if flat, or in the rows in which they travel: what is known where none
    is given."""
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
    """Of the nearest job: of its links by name where it had the same cluster, else of their kinds."""
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


def _same_links(one: LinkGraph, other: LinkGraph) -> bool:
    """By name, with rates that differ by no more than measurements do."""
    rates, others = ({link.name: link.bit_per_s for link in graph.links} for graph in (one, other))
    return rates.keys() == others.keys() and all(
        1 / ALIKE <= rates[name] / others[name] <= ALIKE for name in rates
    )


def _world(job: Job) -> int:
    return sum(host.slots for host in job.cluster.hosts)


def _shape(cluster: Cluster, world: int) -> NetworkShape:
    hosts = [cluster.hosts[at].name for at in placement(cluster, world)]
    return network_shape(range(world), Topology.of(hosts, cluster))
