"""What one all-reduce puts on every pair of ranks, written down from the papers: the oracle of what Rust counts.

Algorithms work on logical ranks, relabelled by the order: `ring` is reduce-scatter and all-gather around the order
(Patarasuk and Yuan 2009, 2(n-1)/n of the bytes on every edge), `two_level` chain-reduces each block to its first member,
rings among those leaders and chain-broadcasts, `direct` sends each rank's share of everything to its owner and back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from hocket.artefacts.plan import AllReduce, Bucket, Owned


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
    one waiting for a step of another. `tail`: per block, streams in a chain that drain after it. `depth`: the most messages of the
    cycle that wait for one another.
    """

    head: tuple[tuple[Stream, ...], ...]
    cycle: tuple[Stream, ...]
    tail: tuple[tuple[Stream, ...], ...]
    depth: int

    @property
    def chains(self) -> tuple[Stream, ...]:
        return tuple(stream for chain in (*self.head, *self.tail) for stream in chain)

    @property
    def streams(self) -> tuple[Stream, ...]:
        return (*self.chains, *self.cycle)


def traffic(bucket: Bucket) -> Traffic:
    """What every rank sends whom.

    >>> route = AllReduce(algorithm="ring")
    >>> ring = traffic(Bucket(parts=(), elements=100, dtype="f32", route=route, order=(0, 2, 1, 3), priority=0))
    >>> [(s.source, s.destination, s.elements) for s in ring.cycle]
    [(0, 2, 150.0), (2, 1, 150.0), (1, 3, 150.0), (3, 0, 150.0)]
    """
    route, order, elements = bucket.route, bucket.order, bucket.elements
    n = len(order)
    if isinstance(route, Owned):
        shares = {owner.rank: owner.share for owner in route.owners}
        return Traffic(head=(), cycle=_owned(order, shares, elements), tail=(), depth=2)
    assert isinstance(route, AllReduce)
    match route.algorithm:
        case "ring":
            return Traffic(head=(), cycle=_ring(order, elements), tail=(), depth=2 * (n - 1))
        case "direct" | "in_place":
            return Traffic(head=(), cycle=_owned(order, dict.fromkeys(order, 1), elements), tail=(), depth=2)
        case "parameter_server":
            shares = dict.fromkeys(order[: route.sizes[0]], 1)
            return Traffic(head=(), cycle=_owned(order, shares, elements), tail=(), depth=2)
        case "double_binary_tree":
            depth = 2 * max((_depth(node, n) for node in range(n)), default=0)
            return Traffic(head=(), cycle=_trees(order, elements), tail=(), depth=depth)
    blocks = _blocks(order, route.sizes)
    up = tuple(_chain(block[::-1], elements, reduced=True) for block in blocks)
    down = tuple(_chain(block, elements, reduced=False) for block in blocks)
    leaders = tuple(block[0] for block in blocks)
    return Traffic(head=up, cycle=_ring(leaders, elements), tail=down, depth=2 * (len(blocks) - 1))


def _ring(members: tuple[int, ...], elements: int) -> tuple[Stream, ...]:
    n = len(members)
    if n < 2:
        return ()
    once = elements * (n - 1) / n
    return tuple(
        Stream(member, members[(i + 1) % n], elements=2 * once, pieces=2 * (n - 1), reduced=once)
        for i, member in enumerate(members)
    )


def _owned(members: tuple[int, ...], shares: dict[int, int], elements: int) -> tuple[Stream, ...]:
    """Each owner's part from all, then its sum to all."""
    unit = elements / sum(shares.values())
    pairs = [
        (owner, share * unit, each) for owner, share in shares.items() for each in members if each != owner
    ]
    pushed = [Stream(each, owner, part, 1, part) for owner, part, each in pairs]
    pulled = [Stream(owner, each, part, 1, 0) for owner, part, each in pairs]
    return _joined([*pushed, *pulled])


def _trees(members: tuple[int, ...], elements: int) -> tuple[Stream, ...]:
    """Half of the elements up and down each of two trees (Sanders, Speck and Traff 2009), numbered in order: a node is as high as
    it has zeros at its end, and node 0 is on top."""
    n, share = len(members), elements / 2
    streams = []
    for half in range(2):
        for node in range(1, n):
            child, parent = (members[_place(each, n, half)] for each in (node, _parent(node, n)))
            streams += [Stream(child, parent, share, 1, share), Stream(parent, child, share, 1, 0)]
    return _joined(streams)


def _parent(node: int, n: int) -> int:
    bit = node & -node
    above = (node ^ bit) | bit << 1
    return above if above < n else node ^ bit


def _depth(node: int, n: int) -> int:
    return 0 if node == 0 else 1 + _depth(_parent(node, n), n)


def _joined(streams: Iterable[Stream]) -> tuple[Stream, ...]:
    found: dict[tuple[int, int], Stream] = {}
    for each in streams:
        pair = each.source, each.destination
        before = found.get(pair, Stream(*pair, 0.0, 0, 0.0))
        found[pair] = Stream(
            *pair,
            before.elements + each.elements,
            before.pieces + each.pieces,
            before.reduced + each.reduced,
        )
    return tuple(found.values())


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
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(order[start : start + size] for start, size in zip(starts, sizes, strict=True))
