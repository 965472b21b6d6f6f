"""How far the cost model is off where all-reduces were measured: a factor for each algorithm and size.

The model knows how time changes with order, codec and buckets; a tuning knows how long an all-reduce really takes, in one order and
without a codec, on a network of some shape. Their ratio there corrects the model everywhere, as far as the shape is the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from hocket.artefacts.cluster import Cluster
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import Bucket, Synchroniser
from hocket.artefacts.tuning import Tuning
from hocket.planning.cost import Factor, alone_s
from hocket.planning.links import LinkGraph
from hocket.planning.order import contiguous_order, placement
from hocket.policy.selection import distance, nearest, seconds, shape_of
from hocket.policy.topology import Topology

CLOSE = 0.5
"""Shapes that differ by a factor of 1.4 in all are the same network, measured twice."""


@dataclass(frozen=True)
class Correction:
    """What a tuning says of a network: a factor for each bucket, and the names of what was measured."""

    factor: Factor
    measured: frozenset[str]


def correction_of(tuning: Tuning, cluster: Cluster, world: int, graph: LinkGraph) -> Correction | None:
    """None when the tuning has no network like the cluster's."""
    hosts = [cluster.hosts[at].name for at in placement(cluster, world)]
    shape = shape_of(range(world), Topology.of(hosts, cluster))
    ladder = nearest(tuning, "all_reduce", shape)
    if ladder is None or distance(ladder.shape, shape) > CLOSE:
        return None
    order, level = contiguous_order(cluster, world), "rack" if shape.racks > 1 else "host"
    known: dict[tuple[str, int, int], float] = {}

    def ratio(bucket: Bucket) -> float:
        """1 for an algorithm that was not measured."""
        name = bucket.synchroniser.algorithm
        measured = seconds(ladder, bucket.elements * ITEM_BYTES[bucket.dtype])
        measured_s = measured.get(f"two_level.{level}" if name == "two_level" else name)
        return 1.0 if measured_s is None else measured_s / alone_s(_plain(bucket), order, graph)

    def remembered(bucket: Bucket) -> float:
        """The same for all buckets of a size."""
        how = bucket.synchroniser
        key = (how.algorithm, how.chunk_bytes, bucket.elements * ITEM_BYTES[bucket.dtype])
        if key not in known:
            known[key] = ratio(bucket)
        return known[key]

    names = {timing.algorithm for point in ladder.points for timing in point.timings}
    return Correction(factor=remembered, measured=frozenset(names))


def _plain(bucket: Bucket) -> Bucket:
    """Without a codec, as it was measured."""
    how = bucket.synchroniser
    return Bucket(
        gradients=bucket.gradients,
        elements=bucket.elements,
        dtype=bucket.dtype,
        priority=bucket.priority,
        synchroniser=Synchroniser(algorithm=how.algorithm, sizes=how.sizes, chunk_bytes=how.chunk_bytes),
    )
