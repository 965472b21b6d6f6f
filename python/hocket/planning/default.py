"""The plan of a job without a profile: gradients in the order of backward, in buckets of the usual sizes.

The route follows from the hosts' names alone, or from a cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hocket.artefacts import profile
from hocket.artefacts.chunks import BUCKET_BYTES, CHUNK_BYTES, FIRST_BUCKET_BYTES, SHARED_CHUNK_BYTES
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.network import restricted
from hocket.artefacts.plan import AllReduce, Codec, Owned, Plan, Route, Rule
from hocket.artefacts.promise import EXACT, Promise
from hocket.errors import UsageError
from hocket.planning import routes
from hocket.planning.buckets import buckets, plan_of
from hocket.planning.rows import rows_bucket, travels
from hocket.planning.search import candidates, neutral_profile
from hocket.policy.algorithms import blocks
from hocket.policy.bucketing import bucketed


class Choice(Struct, frozen=True, kw_only=True):
    """The route of all buckets, and the reason for it."""

    order: tuple[int, ...]
    route: Route
    chunk_bytes: int = CHUNK_BYTES
    codec: Codec = "none"
    codec_links: tuple[tuple[int, int], ...] = ()
    rule: Rule = Rule()
    reason: str


def default_plan(gradients: Sequence[Gradient], choice: Choice, *, buckets_min: int = 1) -> Plan:
    """A plan for `gradients`, given in the order of backward, in as many dense buckets at least as far as there are gradients for
    them. Sparse gradients travel as rows.

    >>> default_plan([Gradient("w", (10,), "f32")], by_hosts(["a", "a"])).label
    'default in_place'
    """
    dense = [each for each in gradients if not travels(each)]
    grouped = bucketed(dense, BUCKET_BYTES, first_bytes=FIRST_BUCKET_BYTES)
    size = sum(each.bytes for each in dense)
    while len(grouped) < min(buckets_min, len(dense)):
        size //= 2
        grouped = bucketed(dense, size, first_bytes=None)
    plain = buckets(grouped, choice.route, choice.order, chunk_bytes=choice.chunk_bytes, rule=choice.rule)
    made = [
        msgspec.structs.replace(bucket, codec=choice.codec, codec_links=choice.codec_links)
        for bucket in plain
    ]
    algorithm = "direct" if choice.route == AllReduce(algorithm="in_place") else "ring"
    made += [
        rows_bucket(
            each, choice.order, len(made) + at, algorithm=algorithm, rule=Rule(order=choice.rule.order)
        )
        for at, each in enumerate(each for each in gradients if travels(each))
    ]
    label = f"default {routes.name(choice.route)}"
    return plan_of(made, len(choice.order), label=label, reason=choice.reason)


def by_hosts(hosts: Sequence[str]) -> Choice:
    """The choice without any measurement; `hosts[rank]` is each rank's host.

    On one host: in place, through shared memory. On several hosts with several ranks each, with contiguous ranks: `two_level`.
    Otherwise a ring.

    >>> by_hosts(["a", "a", "b", "b"]).route.sizes
    (2, 2)
    """
    world = len(hosts)
    sizes = blocks(range(world), hosts)
    route, chunk_bytes, rule = AllReduce(algorithm="ring"), CHUNK_BYTES, Rule(order="given")
    why = "ranks of a host are not next to one another" if sizes is None else "each rank has its own host"
    if sizes is not None and len(sizes) == 1:
        route, chunk_bytes = AllReduce(algorithm="in_place"), SHARED_CHUNK_BYTES
        why = "all ranks are on one host"
    elif sizes is not None and len(sizes) < world:
        route = AllReduce(algorithm="two_level", sizes=sizes)
        rule, why = Rule(order="given", groups="hosts"), "hosts have several ranks"
    return Choice(
        order=tuple(range(world)),
        route=route,
        chunk_bytes=chunk_bytes,
        rule=rule,
        reason=f"Nothing was measured; {why}.",
    )


def by_cluster(
    gradients: Sequence[Gradient], hosts: Sequence[str], cluster: Cluster, promise: Promise = EXACT
) -> Choice:
    """The choice that `hocket plan` would make for a model without compute time, with one route for all buckets.

    Raises UsageError when a rank's host is not in the cluster, ArtefactError for a cluster that contradicts itself.

    >>> from hocket.artefacts.cluster import Cluster, Host, Rack
    >>> places = [Host(name=f"h{i}", rack="ab"[i % 2], bandwidth_bit_per_s=1e9) for i in range(4)]
    >>> racks = tuple(Rack(name=name, uplink_bit_per_s=1e8) for name in "ab")
    >>> gradients = [Gradient("w", (1_000_000,), "f32")]
    >>> by_cluster(gradients, ["h0", "h1", "h2", "h3"], Cluster(hosts=tuple(places), racks=racks)).order
    (0, 2, 1, 3)
    """
    job, ranks = of_job(cluster, hosts)
    neutral = neutral_profile(
        profile.Gradient(name=each.name, shape=each.shape, dtype=each.dtype, ready_s=0.0, needed_s=0.0)
        for each in reversed(gradients)
    )
    considered = candidates(job, neutral, len(hosts), promise=promise)
    best = min(considered, key=lambda each: round(each.predicted_step_s, 6))
    first = best.buckets[0]
    links = tuple((ranks[a], ranks[b]) for a, b in first.codec_links)
    return Choice(
        order=tuple(ranks[place] for place in first.order),
        route=on_ranks(first.route, ranks),
        chunk_bytes=first.chunk_bytes,
        codec=first.codec,
        codec_links=tuple(sorted(links)),
        rule=first.rule,
        reason=f"No model was measured; for this cluster, {best.label} is predicted to be the fastest of "
        f"{len(considered)} plans.",
    )


def on_ranks(route: Route, ranks: Sequence[int]) -> Route:
    """A route over places as a route over ranks; `ranks[place]` is the rank at a place."""
    if isinstance(route, Owned):
        owners = (msgspec.structs.replace(each, rank=ranks[each.rank]) for each in route.owners)
        return msgspec.structs.replace(route, owners=tuple(owners))
    return route


def of_job(cluster: Cluster, hosts: Sequence[str]) -> tuple[Cluster, tuple[int, ...]]:
    """The cluster's hosts that have ranks, with one slot per rank; and the rank in each slot, in order.

    `hosts[rank]` is each rank's host. UsageError if the cluster lacks one.
    """
    unknown = next((host for host in hosts if all(host != each.name for each in cluster.hosts)), None)
    if unknown is not None:
        raise UsageError(
            f"rank {list(hosts).index(unknown)} is on host `{unknown}`, which the cluster does not have\n"
            "hint: `hocket probe` measures the hosts of a job"
        )
    used = restricted(cluster, [at for at, host in enumerate(cluster.hosts) if host.name in hosts])
    slots = Counter(hosts)
    placed = msgspec.structs.replace(
        used, hosts=tuple(msgspec.structs.replace(host, slots=slots[host.name]) for host in used.hosts)
    )
    ranks = tuple(rank for each in used.hosts for rank, host in enumerate(hosts) if host == each.name)
    return placed, ranks
