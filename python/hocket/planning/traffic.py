"""Traffic of one bucket between ranks, counted by `crates/algorithms` from the building blocks of programs."""

from __future__ import annotations

from collections.abc import Collection

from hocket import _native
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import AllReduce, Bucket
from hocket.planning.routes import by, members

Pair = tuple[int, int]
"""Source and destination: physical ranks."""


def sent(bucket: Bucket, workers: Collection[int] | None = None) -> dict[Pair, int]:
    """Elements from rank to rank. `workers`: see `routes.by`.

    Raises UsageError when the route does not fit so many ranks.

    >>> route = AllReduce(algorithm="ring")
    >>> sent(Bucket(parts=(), elements=100, dtype="f32", route=route, order=(0, 2, 1, 3), priority=0))
    {(0, 2): 150, (1, 3): 150, (2, 1): 150, (3, 0): 150}
    """
    return _sent(bucket, bucket.elements, workers)


def pairs(bucket: Bucket, workers: Collection[int] | None = None) -> frozenset[Pair]:
    """Pairs of ranks with traffic, if there are enough elements.

    >>> route = AllReduce(algorithm="two_level", sizes=(2, 1))
    >>> sorted(pairs(Bucket(parts=(), elements=0, dtype="f32", route=route, order=(0, 1, 2), priority=0)))
    [(0, 1), (0, 2), (1, 0), (2, 0)]
    """
    return frozenset(_sent(bucket, None, workers))


def wire_bytes(bucket: Bucket, source: int, destination: int) -> int:
    """Bytes of one element between two ranks: the codec's on its links, if fewer."""
    plain = ITEM_BYTES[bucket.dtype]
    if bucket.codec == "none" or (source, destination) not in bucket.codec_links:
        return plain
    return min(plain, ITEM_BYTES[bucket.codec])


def _sent(bucket: Bucket, elements: int | None, workers: Collection[int] | None) -> dict[Pair, int]:
    route, order = by(bucket, workers), members(bucket, workers)
    if isinstance(route, AllReduce):
        flows = _native.count_messages(
            route.algorithm, route.sizes, "all_reduce", members=len(order), elements=elements, root=0
        )
    else:
        flows = _native.owned_messages(route, elements)
    sums: dict[Pair, int] = {}
    for source, destination, moved, _ in flows:
        pair = order[source], order[destination]
        sums[pair] = sums.get(pair, 0) + moved
    return dict(sorted(sums.items()))
