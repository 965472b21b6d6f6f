"""What one all-reduce sends between ranks, as `crates/algorithms` counts it of the algorithm that the `lower` pass writes."""

from __future__ import annotations

from collections.abc import Sequence

from hocket import _native
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import Synchroniser

Pair = tuple[int, int]
"""Source and destination: physical ranks."""


def sent(synchroniser: Synchroniser, order: Sequence[int], elements: int) -> dict[Pair, int]:
    """Elements from rank to rank when `elements` are all-reduced over `order`.

    Raises UsageError when the algorithm does not fit so many ranks.

    >>> sent(Synchroniser(algorithm="ring"), (0, 2, 1, 3), 100)
    {(0, 2): 150, (1, 3): 150, (2, 1): 150, (3, 0): 150}
    """
    return _sent(synchroniser, order, elements)


def pairs(synchroniser: Synchroniser, order: Sequence[int]) -> frozenset[Pair]:
    """Who sends to whom, when there is enough to send.

    >>> sorted(pairs(Synchroniser(algorithm="two_level", sizes=(2, 1)), (0, 1, 2)))
    [(0, 1), (0, 2), (1, 0), (2, 0)]
    """
    return frozenset(_sent(synchroniser, order, None))


def wire_bytes(synchroniser: Synchroniser, dtype: str, source: int, destination: int) -> int:
    """Bytes of one element between two ranks: the codec's on its links, where that is less."""
    plain = ITEM_BYTES[dtype]
    if synchroniser.codec == "none" or (source, destination) not in synchroniser.codec_links:
        return plain
    return min(plain, ITEM_BYTES[synchroniser.codec])


def _sent(synchroniser: Synchroniser, order: Sequence[int], elements: int | None) -> dict[Pair, int]:
    flows = _native.count_messages(
        synchroniser.algorithm,
        synchroniser.sizes,
        "all_reduce",
        members=len(order),
        elements=elements,
        root=0,
    )
    sums: dict[Pair, int] = {}
    for source, destination, moved, _ in flows:
        pair = order[source], order[destination]
        sums[pair] = sums.get(pair, 0) + moved
    return dict(sorted(sums.items()))
