"""`joint`: all choices that a promise allows together, against each kind of choice alone. In virtual time, message by message: real
ranks would take an hour.

Each contender is the best plan from one kind of choice, applied to Hocket's default: a codec, owners, an order, gates, or late
gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import msgspec

from benches.row import Row
from benches.strategies.cases import CLUSTERS, MODELS
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Owned, Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise
from hocket.planning import delays
from hocket.planning.default import by_hosts, default_plan
from hocket.planning.links import link_graph
from hocket.planning.order import given_order
from hocket.planning.question import question_of
from hocket.planning.search import considered
from hocket.tools.bench.layered import layered, weights
from hocket.tools.report.quantity import TIMES
from hocket.tools.simulation import shortlist
from hocket.tools.simulation.fidelity import predict

SETTINGS = (
    ("star", "uneven"),
    ("racks", "blocks"),
    ("racks", "even"),
    ("three racks", "uneven"),
    ("slow host", "blocks"),
)
FORWARD_S, BACKWARD_S = 0.06, 0.12
"""Computation about as long as the communication of some of these: otherwise late gradients never pay."""
LEVELS = (
    Promise("exact"),
    Promise("rounded"),
    Promise("merged", merge=2),
    Promise("delayed", merge=2, delay=1),
)
TIE = 1.005
"""Ratio of simulated steps below which two plans are equally fast."""
NAME = "joint"


def measured() -> Iterator[Row]:
    """Table of ablations for each setting, then a check that the joint choice is the best everywhere."""
    behind, slower = 1.0, 1.0
    for cluster_name, model in SETTINGS:
        cluster, profile = CLUSTERS[cluster_name], _paced(MODELS[model])
        alone = {name: _best_s(plans, cluster, profile) for name, plans in _alone(cluster, profile)}
        levels = [_step_s(_joint(cluster, profile, level), cluster, profile) for level in LEVELS]
        where = f"{cluster_name}, {model}"
        for name, step_s in alone.items():
            yield Row(name=NAME, what=f"{where}: {name} alone", value=1e3 * step_s, unit="ms")
        for level, step_s in zip(LEVELS, levels, strict=True):
            yield Row(name=NAME, what=f"{where}: all together, {level.word}", value=1e3 * step_s, unit="ms")
        # Each kind of choice is compared with all choices under the same promise.
        reached = {
            "codec": levels[1],
            "owners": levels[0],
            "order": levels[0],
            "gates": levels[3],
            "delay": levels[3],
        }
        behind = max(behind, *(reached[name] / step_s for name, step_s in alone.items()))
        slower = max(slower, *(after / before for before, after in pairwise(levels)))
    yield Row(
        name=NAME, what="all together over the best alone, worst case", value=behind, target=TIE, unit=TIMES
    )
    yield Row(
        name=NAME, what="a promise over the stricter one, worst case", value=slower, target=TIE, unit=TIMES
    )


def _alone(cluster: Cluster, profile: Profile) -> Iterator[tuple[str, list[Plan]]]:
    """Plans to choose from, including the default, by kind of choice."""
    world = len(cluster.hosts)
    gradients = [Gradient(each.name, each.shape, each.dtype) for each in reversed(profile.gradients)]
    default = default_plan(gradients, by_hosts([host.name for host in cluster.hosts]))
    uniform = question_of(cluster, profile, world, Promise("rounded"), None).solved(0).uniform()

    def of(plan: Plan) -> tuple[object, tuple[int, ...], str]:
        first = plan.buckets[0]
        return first.route, first.order, first.codec

    given, ring = given_order(world), AllReduce(algorithm="ring")
    yield "codec", [default, *(each for each in uniform if of(each)[:2] == (ring, given))]
    owned = [each for each in uniform if isinstance(of(each)[0], Owned) and of(each)[2] == "none"]
    yield "owners", [default, *owned]
    yield "order", [default, *(each for each in uniform if of(each)[0] == ring and of(each)[2] == "none")]
    gates = msgspec.structs.replace(default.schedule, overlap="gates")
    yield "gates", [default, msgspec.structs.replace(default, schedule=gates)]
    yield "delay", [default, _scheduled(default, cluster, profile, LEVELS[-1])]


def _joint(cluster: Cluster, profile: Profile, promise: Promise) -> Plan:
    """Make a plan like `hocket plan`."""
    found = considered(cluster, profile, len(cluster.hosts), promise=promise)
    return _scheduled(shortlist.chosen(found, cluster, profile), cluster, profile, promise)


def _scheduled(plan: Plan, cluster: Cluster, profile: Profile, promise: Promise) -> Plan:
    return delays.scheduled(plan, link_graph(cluster, len(cluster.hosts)), profile, promise, "linear")


def _paced(profile: Profile) -> Profile:
    elements = [each.elements for each in profile.gradients]
    return layered(profile.model, weights(elements), forward_s=FORWARD_S, backward_s=BACKWARD_S)


def _best_s(plans: list[Plan], cluster: Cluster, profile: Profile) -> float:
    return min(_step_s(plan, cluster, profile) for plan in plans)


def _step_s(plan: Plan, cluster: Cluster, profile: Profile) -> float:
    return predict(plan, cluster, profile).step_s
