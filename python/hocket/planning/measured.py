"""How far the cost model is off where all-reduces were measured: a factor for each algorithm and size.

The model knows how time changes with order, codec and buckets; a tuning knows how long an all-reduce really takes, in one order and
without a codec, on a network of some shape. Their ratio there corrects the model everywhere, as far as the shape is the same.
Owners are corrected as the direct exchange is: everybody pushes to them and pulls from them by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from hocket.artefacts.algorithms import Fitting, fitting
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Bucket, Direct, Owned, Route
from hocket.artefacts.tuning import Tuning
from hocket.planning.cost import Factor, alone_s
from hocket.planning.links import LinkGraph
from hocket.planning.order import contiguous_order, placement
from hocket.planning.routes import name as route_name
from hocket.policy.selection import distance, nearest, network_shape, seconds
from hocket.policy.topology import Topology

CLOSE = 0.5
"""Shapes that differ by a factor of 1.4 in all are the same network, measured twice."""


@dataclass(frozen=True)
class Correction:
    """What a tuning says of a network: a factor for each bucket, and what was measured.

    `ratio`: of a bucket, by the name under which its algorithm is measured. `algorithms`: those that fit the network.
    """

    factor: Factor
    measured: frozenset[str]
    algorithms: Fitting
    ratio: Callable[[str, Bucket], float]

    def factors(
        self, gradients: Sequence[Gradient], chunk_bytes: int
    ) -> list[tuple[str, list[tuple[float, float]]]]:
        """By the name under which an algorithm is measured: the factor for buckets of any of these gradients, by elements."""
        largest = max(gradients, key=lambda each: each.bytes)
        least = max(1, min(each.elements for each in gradients))
        most = max(least, sum(each.elements for each in gradients))
        sizes = [min(most, least * 2**step) for step in range(math.ceil(math.log2(most / least)) + 1)]
        found = []
        for name in sorted(self.measured & set(self.algorithms)):
            algorithm = self.algorithms[name]
            route = AllReduce(algorithm=algorithm.name, sizes=algorithm.numbers)
            factors = [
                (float(size), self.ratio(name, _of(size, largest, route, chunk_bytes))) for size in sizes
            ]
            found.append((name, factors))
        return found


def correction_of(tuning: Tuning, cluster: Cluster, world: int, graph: LinkGraph) -> Correction | None:
    """None when the tuning has no network like the cluster's."""
    order = contiguous_order(cluster, world)
    places = placement(cluster, world)
    hosts = [cluster.hosts[at].name for at in places]
    shape = network_shape(range(world), Topology.of(hosts, cluster))
    ladder = nearest(tuning, "all_reduce", shape)
    if ladder is None or distance(ladder.shape, shape) > CLOSE:
        return None
    level = "rack" if shape.racks > 1 else "host"
    known: dict[tuple[str, int, int], float] = {}

    def ratio(name: str, bucket: Bucket) -> float:
        """1 for an algorithm that was not measured."""
        measured = seconds(ladder, bucket.elements * ITEM_BYTES[bucket.dtype])
        return measured[name] / alone_s(_plain(bucket, order), graph) if name in measured else 1.0

    def remembered(bucket: Bucket) -> float:
        """The same for all buckets of a size."""
        route = _measured_route(bucket.route)
        algorithm = route_name(route)
        key = (algorithm, bucket.chunk_bytes, bucket.elements * ITEM_BYTES[bucket.dtype])
        if key not in known:
            name = f"two_level.{level}" if algorithm == "two_level" else algorithm
            known[key] = ratio(name, msgspec.structs.replace(bucket, route=route))
        return known[key]

    return Correction(
        factor=remembered,
        measured=frozenset(timing.algorithm for point in ladder.points for timing in point.timings),
        algorithms=fitting(
            "all_reduce",
            [cluster.hosts[places[rank]].name for rank in order],
            [cluster.hosts[places[rank]].rack for rank in order],
        ),
        ratio=ratio,
    )


def _of(elements: int, gradient: Gradient, route: AllReduce, chunk_bytes: int) -> Bucket:
    return Bucket(
        parts=(),
        elements=elements,
        dtype=gradient.dtype,
        route=route,
        order=(),
        priority=0,
        chunk_bytes=chunk_bytes,
    )


def _measured_route(route: Route) -> Route:
    """The one that was measured in its place."""
    if isinstance(route, Owned) and isinstance(route.via, Direct):
        return AllReduce(algorithm="direct")
    return route


def _plain(bucket: Bucket, order: tuple[int, ...]) -> Bucket:
    """In the order in which it was measured, without a codec."""
    return msgspec.structs.replace(bucket, order=order, codec="none", codec_links=())
