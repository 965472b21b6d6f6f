"""What version 1 of plans was chosen from: one order, algorithm, codec and bucket size for the whole model.

A ring or two levels in the given or the contiguous order, in place on one host, f16 on slow links or on none, buckets of 1, 4 or
16 MiB or the whole model.
"""

from __future__ import annotations

from collections.abc import Iterator

from hocket.artefacts.chunks import SHARED_CHUNK_BYTES, chunk_bytes
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import AllReduce, Plan
from hocket.artefacts.profile import Profile
from hocket.planning.buckets import buckets, plan_of, with_codec
from hocket.planning.cost import predict
from hocket.planning.links import link_graph
from hocket.planning.order import contiguous_order, given_order, level_sizes
from hocket.policy.bucketing import bucketed

BUCKET_BYTES = (1 << 20, 4 << 20, 16 << 20, None)


def first_choice(cluster: Cluster, profile: Profile, world: int, *, rounded: bool = False) -> Plan:
    """The one that version 1 took: predicted to be the fastest, the simplest of equals."""
    return min(
        grid(cluster, profile, world, rounded=rounded),
        key=lambda plan: round(predict(plan, cluster, profile).step_s, 6),
    )


def grid(cluster: Cluster, profile: Profile, world: int, *, rounded: bool) -> Iterator[Plan]:
    graph = link_graph(cluster, world)
    at = {each.name: index for index, each in enumerate(profile.gradients)}
    backward = sorted(profile.gradients, key=lambda each: (each.ready_s, -at[each.name]))
    sizes = level_sizes(cluster, world)
    routes = [AllReduce(algorithm="ring")]
    if len(set(graph.hosts)) == 1:
        routes.append(AllReduce(algorithm="in_place"))
    if sizes:
        routes.append(AllReduce(algorithm="two_level", sizes=sizes))
    for codec in ("none", "f16") if rounded else ("none",):
        for route in routes:
            chunk = (
                SHARED_CHUNK_BYTES if route.algorithm == "in_place" else chunk_bytes(graph.slowest_bit_per_s)
            )
            for order in dict.fromkeys((given_order(world), contiguous_order(cluster, world))):
                for size in BUCKET_BYTES:
                    made = buckets(bucketed(backward, size), route, order, chunk_bytes=chunk)
                    if codec != "none":
                        slow = graph.slow_pairs() or graph.remote_pairs()
                        made = tuple(with_codec(bucket, codec, slow) for bucket in made)
                        if not all(bucket.codec_links for bucket in made):
                            continue
                    yield plan_of(made, world, label=f"{route.algorithm} {codec} {size}")
