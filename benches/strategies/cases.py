"""Clusters and models for comparing plans, and the builders' plans for them."""

from __future__ import annotations

from collections.abc import Sequence

from benches.emulated import hosts
from hocket.artefacts.chunks import chunk_bytes
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Plan
from hocket.artefacts.profile import Profile
from hocket.planning.buckets import buckets, plan_of
from hocket.planning.builders import BUILDERS
from hocket.planning.default import by_hosts, default_plan
from hocket.planning.links import link_graph
from hocket.planning.rows import with_rows
from hocket.planning.search import Considered
from hocket.policy.bucketing import bucketed
from hocket.tools.bench.layered import layered, weights

GIGABIT, MEGABIT = 1e9, 1e6
ELEMENTS = 3_250_000
"""Elements of the demo's model, 13 MB."""
FORWARD_S, BACKWARD_S = 0.0, 0.04

FUSED_BYTES = 64 << 20
"""Size of Horovod's fusion buffer."""

HOPELESS = 1.5
"""Ratio of predicted times to the best plan's above which a builder's plan is not run."""

CLUSTERS: dict[str, Cluster] = {
    "star": hosts([GIGABIT] * 4),
    "racks": hosts([GIGABIT] * 4, 2, 100 * MEGABIT, alternating=True),
    "three racks": hosts([500 * MEGABIT] * 6, 3, 200 * MEGABIT),
    "slow host": hosts([100 * MEGABIT, *([GIGABIT] * 3)]),
}


def _model(name: str, shares: Sequence[float]) -> Profile:
    """Model of gradients with these shares of ELEMENTS."""
    elements = [max(1, round(ELEMENTS * share / sum(shares))) for share in shares]
    return layered(name, weights(elements), forward_s=FORWARD_S, backward_s=BACKWARD_S)


MODELS: dict[str, Profile] = {
    "even": _model("even", [1.0] * 13),
    # One layer has two thirds of the parameters (VGG).
    "uneven": _model("uneven", [0.5, 1, 2, 3, 4, 5, 5, 5, 68, 11, 3]),
    # Many small ones between some large ones (ResNet-50: 161 tensors).
    "small": _model("small", [20.0 if at % 8 == 0 else 0.05 for at in range(160)]),
    # An embedding, and blocks of four matrices with their norms.
    "blocks": _model("blocks", [12.0, *([3.0, 1.0, 4.0, 4.0, 0.01, 0.01] * 6)]),
}


def builders(
    cluster: Cluster, profile: Profile, considered: Considered, *, hopeless: float = HOPELESS
) -> dict[str, Plan]:
    """The different plans of builders that may be the fastest: Hocket's default, Horovod's, AutoDist's eight, and a ring, each with
    the settings that are predicted to be the best."""
    world = len(cluster.hosts)
    gradients = [
        Gradient(each.name, each.shape, each.dtype, sparse=each.sparse)
        for each in reversed(profile.gradients)
    ]
    chunk = chunk_bytes(link_graph(cluster, world).slowest_bit_per_s)

    def of(label: str, size_bytes: int, algorithm: str) -> Plan:
        route = AllReduce(algorithm=algorithm)
        made = buckets(bucketed(gradients, size_bytes), route, range(world), chunk_bytes=chunk)
        return with_rows(plan_of(made, world, label=label), gradients)

    made = {
        # Its buckets are the same as DDP's.
        "default": default_plan(gradients, by_hosts([host.name for host in cluster.hosts])),
        "horovod": of("horovod", FUSED_BYTES, "ring"),
        "ring": considered.of_builder("ring"),
    }
    made |= {name: plan for name, plan in considered.built if name in BUILDERS}
    least_s = min(considered.question.predicted(plan).step_s for plan in made.values())
    # Several builders make the same plan, and some cannot be the best, even with errors of prediction.
    different = {plan.buckets: name for name, plan in reversed(made.items())}
    return {
        name: made[name]
        for name in reversed(different.values())
        if considered.question.predicted(made[name]).step_s <= hopeless * least_s
    }
