"""What one all-reduce puts on every link: an exact account of bytes, and the delays that pipelining leaves.

The algorithms here are those that the `lower` pass writes, on logical ranks, then relabelled by the order and
split into chunks: `ring` is reduce-scatter and all-gather around the order (Patarasuk and Yuan 2009,
2(n-1)/n of the bytes on every edge), `two_level` chain-reduces each block to its first member, rings among
those leaders and chain-broadcasts, `direct` sends each rank's share of everything to its owner and back.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.plan import Synchroniser
from hocket.errors import UsageError


@dataclass(frozen=True)
class Stream:
    """Messages that flow from one rank to another during the all-reduce.

    `elements` in all, in `pieces` steps that follow one another; of them `reduced` are added to what the
    receiver has.
    """

    source: int
    destination: int
    elements: float
    pieces: int
    reduced: float


@dataclass(frozen=True)
class Traffic:
    """Streams of one all-reduce between physical ranks, by the part they play in time.

    `head`: per block, streams in a chain that fill before the cycle starts; a block's leader starts with the
    share of its own number, so it waits for those before it. `cycle`: streams that run together, each step of
    one waiting for a step of another. `tail`: per block, streams in a chain that drain after it.
    """

    head: tuple[tuple[Stream, ...], ...]
    cycle: tuple[Stream, ...]
    tail: tuple[tuple[Stream, ...], ...]

    @property
    def chains(self) -> tuple[Stream, ...]:
        """Streams of head and tail."""
        return tuple(stream for chain in (*self.head, *self.tail) for stream in chain)

    @property
    def streams(self) -> tuple[Stream, ...]:
        """All streams."""
        return (*self.chains, *self.cycle)


def traffic(synchroniser: Synchroniser, order: tuple[int, ...], elements: int) -> Traffic:
    """What every rank sends whom when `elements` are all-reduced over `order`.

    Raises UsageError when the sizes of a two-level plan do not add up to the ranks, or there are no servers.

    >>> ring = traffic(Synchroniser(algorithm="ring"), (0, 2, 1, 3), 100)
    >>> [(s.source, s.destination, s.elements) for s in ring.cycle]
    [(0, 2, 150.0), (2, 1, 150.0), (1, 3, 150.0), (3, 0, 150.0)]
    """
    if synchroniser.algorithm == "ring":
        return Traffic(head=(), cycle=_ring(order, elements), tail=())
    if synchroniser.algorithm in ("direct", "in_place"):
        return Traffic(head=(), cycle=_owned(order, order, elements), tail=())
    if synchroniser.algorithm == "parameter_server":
        if len(synchroniser.sizes) != 1 or not 1 <= synchroniser.sizes[0] <= len(order):
            raise UsageError(f"plan: {list(synchroniser.sizes)} servers of {len(order)} ranks")
        return Traffic(head=(), cycle=_owned(order, order[: synchroniser.sizes[0]], elements), tail=())
    if synchroniser.algorithm == "double_binary_tree":
        return Traffic(head=(), cycle=_trees(order, elements), tail=())
    blocks = _blocks(order, synchroniser.sizes)
    up = tuple(_chain(block[::-1], elements, reduced=True) for block in blocks)
    down = tuple(_chain(block, elements, reduced=False) for block in blocks)
    return Traffic(head=up, cycle=_ring(tuple(block[0] for block in blocks), elements), tail=down)


def wire_bytes(synchroniser: Synchroniser, dtype: str, source: int, destination: int) -> int:
    """Bytes of one element between two ranks: the codec's on its links, where that is less."""
    plain = ITEM_BYTES[dtype]
    if synchroniser.codec == "none" or (source, destination) not in synchroniser.codec_links:
        return plain
    return min(plain, ITEM_BYTES[synchroniser.codec])


def _ring(members: tuple[int, ...], elements: int) -> tuple[Stream, ...]:
    n = len(members)
    if n < 2:
        return ()
    once = elements * (n - 1) / n
    return tuple(
        Stream(member, members[(i + 1) % n], elements=2 * once, pieces=2 * (n - 1), reduced=once)
        for i, member in enumerate(members)
    )


def _owned(members: tuple[int, ...], owners: tuple[int, ...], elements: int) -> tuple[Stream, ...]:
    """Each owner's part from all, then its sum to all."""
    share = elements / len(owners)
    sums = {(member, owner): (share, share) for owner in owners for member in members if member != owner}
    for owner in owners:
        for member in members:
            if member != owner:
                moved, reduced = sums.get((owner, member), (0.0, 0.0))
                sums[owner, member] = moved + share, reduced
    return tuple(
        Stream(source, destination, elements=moved, pieces=2, reduced=reduced)
        for (source, destination), (moved, reduced) in sums.items()
    )


def _trees(members: tuple[int, ...], elements: int) -> tuple[Stream, ...]:
    """Half of the elements up and down each of two trees (Sanders, Speck and Traff 2009), numbered in order: a node is as high as
    it has zeros at its end, and node 0 is on top."""
    n, share = len(members), elements / 2
    streams = []
    for half in range(2):
        for node in range(1, n):
            bit = node & -node
            above = (node ^ bit) | bit << 1
            child, parent = (_place(each, n, half) for each in (node, above if above < n else node ^ bit))
            streams += [
                Stream(members[child], members[parent], elements=share, pieces=1, reduced=share),
                Stream(members[parent], members[child], elements=share, pieces=1, reduced=0),
            ]
    return tuple(streams)


def _place(node: int, n: int, half: int) -> int:
    """The member at a node; the second tree is mirrored when n is even, moved by one when it is odd."""
    if half == 0:
        return node
    return n - 1 - node if n % 2 == 0 else (node + 1) % n


def _chain(members: tuple[int, ...], elements: int, *, reduced: bool) -> tuple[Stream, ...]:
    return tuple(
        Stream(a, b, elements=elements, pieces=1, reduced=elements if reduced else 0)
        for a, b in pairwise(members)
    )


def _blocks(order: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    if sum(sizes) != len(order) or any(size < 1 for size in sizes):
        raise UsageError(
            f"plan: sizes {list(sizes)} of a two-level all-reduce do not divide {len(order)} ranks"
        )
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(order[start : start + size] for start, size in zip(starts, sizes, strict=True))
