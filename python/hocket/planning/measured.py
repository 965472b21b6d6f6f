"""Correction of the cost model by measured all-reduces: a factor for each algorithm and size.

The model predicts how time changes with order, codec and buckets; a tuning has the real time of an all-reduce, in one order and
without a codec, on a network of some shape. Their ratio corrects the model on all networks of this shape. Owners are corrected like
the direct exchange, in which every rank pushes to each and pulls from each directly.
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
from hocket.artefacts.network import Network
from hocket.artefacts.plan import AllReduce, Bucket, Direct, Owned, Route
from hocket.artefacts.tuning import Tuning
from hocket.planning.cost import Factor, alone_s
from hocket.planning.order import contiguous_order, placement
from hocket.planning.routes import name as route_name
from hocket.policy.selection import distance, nearest, network_shape, seconds
from hocket.policy.topology import Topology

CLOSE = 0.5
"""Distance between shapes of one network measured twice: a factor of 1.4 in all."""


@dataclass(frozen=True)
class Correction:
    """Correction of a network's predictions by a tuning: a factor for each bucket, and the measured algorithms.

    `ratio`: a bucket's factor, by its algorithm's name in the tuning. `algorithms`: algorithms that fit the network.
    """

    factor: Factor
    measured: frozenset[str]
    algorithms: Fitting
    ratio: Callable[[str, Bucket], float]

    def factors(
        self, gradients: Sequence[Gradient], chunk_bytes: int
    ) -> list[tuple[str, list[tuple[float, float]]]]:
        """Factors for buckets of any of these gradients, with numbers of elements, by the algorithm's name in the tuning."""
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


def correction_of(tuning: Tuning, cluster: Cluster, world: int, graph: Network) -> Correction | None:
    """Return the correction for a cluster, or None if the tuning has no similar network."""
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
        """Ratio of measured to predicted time; 1 for an algorithm that was not measured."""
        measured = seconds(ladder, bucket.elements * ITEM_BYTES[bucket.dtype])
        return measured[name] / alone_s(_plain(bucket, order), graph) if name in measured else 1.0

    def remembered(bucket: Bucket) -> float:
        """Ratio of a bucket, computed once for all buckets of a size."""
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
    """Return the route whose measurement stands for this one."""
    if isinstance(route, Owned) and isinstance(route.via, Direct):
        return AllReduce(algorithm="direct")
    return route


def _plain(bucket: Bucket, order: tuple[int, ...]) -> Bucket:
    """Return the bucket in the measured order, without a codec."""
    return msgspec.structs.replace(bucket, order=order, codec="none", codec_links=())
