"""Sweep of a model's step on the same racks with other bandwidths, numbers of ranks and strategies, or of one plan.

All combinations are independent, and run wherever `tasks` has them run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import product

from msgspec import Struct

from hocket.artefacts.chunks import BUCKET_BYTES
from hocket.artefacts.cluster import Cluster, Host
from hocket.artefacts.plan import AllReduce, Codec, Plan
from hocket.artefacts.profile import Profile
from hocket.errors import UsageError
from hocket.planning.buckets import buckets, plan_of, with_codec
from hocket.planning.links import link_graph
from hocket.planning.order import contiguous_order, rack_blocks
from hocket.policy.bucketing import bucketed
from hocket.tools.simulation.conditions import Conditions
from hocket.tools.simulation.fidelity import Fidelity, predict
from hocket.tools.simulation.tasks import Processes, Tasks

STRATEGIES: dict[str, tuple[str, Codec]] = {
    "ring": ("ring", "none"),
    "ring-f16": ("ring", "f16"),
    "two-level": ("two_level", "none"),
    "two-level-f16": ("two_level", "f16"),
    "direct": ("direct", "none"),
    "direct-f16": ("direct", "f16"),
}
"""Names of the compared strategies: an algorithm, and the codec between hosts."""


class Case(Struct, frozen=True, kw_only=True):
    """Combination of the sweep. `bandwidth_bit_per_s` is every host's own link; None: the cluster's rates."""

    bandwidth_bit_per_s: float | None
    world: int
    strategy: str


class Answer(Struct, frozen=True, kw_only=True):
    case: Case
    step_s: float
    exposed_s: float
    bottleneck: str


def cases(bandwidths: Sequence[float | None], worlds: Sequence[int], strategies: Sequence[str]) -> list[Case]:
    """Return all combinations. Raises UsageError for an unknown strategy, or fewer than two ranks."""
    unknown = next((name for name in strategies if name not in STRATEGIES), None)
    if unknown is not None:
        raise UsageError(f"there is no strategy `{unknown}`\nhint: there are {', '.join(STRATEGIES)}")
    if min(worlds) < 2:
        raise UsageError("a step of 1 rank has no communication\nhint: ask for 2 ranks or more")
    combined = product(bandwidths, worlds, strategies)
    return [Case(bandwidth_bit_per_s=rate, world=count, strategy=name) for rate, count, name in combined]


def sweep(
    cluster: Cluster,
    profile: Profile,
    requested: Sequence[Case],
    *,
    given: Plan | None = None,
    fidelity: Fidelity = "flow",
    conditions: Conditions | None = None,
    shaped: bool = False,
    tasks: Tasks | None = None,
    on_done: Callable[[], object] = lambda: None,
) -> list[Answer]:
    """Return answers in the order of the cases, of `given` or by each case's strategy.

    `tasks`: where they run; default: in processes of this machine. `on_done` is called after each answer, in any order. Raises as
    `fidelity.predict` does.
    """
    ask = partial(
        answer, cluster, profile, given=given, fidelity=fidelity, conditions=conditions, shaped=shaped
    )
    return (tasks or Processes()).map(ask, requested, on_done=on_done)


def answer(
    cluster: Cluster,
    profile: Profile,
    case: Case,
    *,
    given: Plan | None = None,
    fidelity: Fidelity = "flow",
    conditions: Conditions | None = None,
    shaped: bool = False,
) -> Answer:
    slots = sum(host.slots for host in cluster.hosts)
    grown = changed(cluster, case.bandwidth_bit_per_s, None if case.world == slots or given else case.world)
    outcome = predict(
        given or plan(grown, profile, case),
        grown,
        profile,
        fidelity=fidelity,
        conditions=conditions,
        shaped=shaped,
    )
    return Answer(
        case=case,
        step_s=outcome.step_s,
        exposed_s=outcome.exposed_s,
        bottleneck=outcome.loads[0].link if outcome.loads else "",
    )


def changed(cluster: Cluster, bandwidth_bit_per_s: float | None, world: int | None) -> Cluster:
    """Return the cluster with every host's link at another rate, or with `world` hosts of one slot; trunks are unchanged.

    New hosts are in the cluster's racks in turn of its hosts. Measurements between hosts are left out, since the hosts are others.
    """
    if bandwidth_bit_per_s is None and world is None:
        return cluster
    kinds = cluster.hosts
    hosts = (
        kinds
        if world is None
        else tuple(
            Host(
                name=f"w{at}",
                rack=kinds[at % len(kinds)].rack,
                bandwidth_bit_per_s=kinds[at % len(kinds)].bandwidth_bit_per_s,
            )
            for at in range(world)
        )
    )
    if bandwidth_bit_per_s is not None:
        hosts = tuple(
            Host(name=host.name, rack=host.rack, slots=host.slots, bandwidth_bit_per_s=bandwidth_bit_per_s)
            for host in hosts
        )
    return Cluster(hosts=hosts, racks=cluster.racks)


def plan(cluster: Cluster, profile: Profile, case: Case) -> Plan:
    """Return a plan with buckets of 4 MiB as backward makes them, ranks of a rack next to each other; two levels are racks, or with
    one rack pairs."""
    algorithm, codec = STRATEGIES[case.strategy]
    order = contiguous_order(cluster, case.world)
    sizes: tuple[int, ...] = ()
    if algorithm == "two_level":
        blocks = rack_blocks(cluster, case.world)
        sizes = tuple(len(block) for block in blocks)
        if len(sizes) == 1:
            sizes = tuple(min(2, case.world - at) for at in range(0, case.world, 2))
    backward = sorted(profile.gradients, key=lambda gradient: gradient.ready_s)
    made = buckets(bucketed(backward, BUCKET_BYTES), AllReduce(algorithm=algorithm, sizes=sizes), order)
    if codec != "none":
        remote = link_graph(cluster, case.world).remote_pairs()
        made = tuple(with_codec(bucket, codec, remote) for bucket in made)
    return plan_of(made, case.world, label=case.strategy)
