"""Placement of keys on servers: large keys are split over all servers, small ones go to the server with the fewest bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

SPLIT_ELEMENTS_MIN = 1_000_000
"""Size from which keys are split: a part is then worth a message to each server, and no server holds much more than the others,
whatever the model. The bound of MXNet's `MXNET_KVSTORE_BIGARRAY_BOUND`."""


@dataclass(frozen=True)
class Piece:
    """Elements `start..stop` of a key, on a server (counted from 0)."""

    server: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def cut(elements: int, servers: Sequence[int]) -> tuple[Piece, ...]:
    """Cut a key into pieces for these servers: as even as possible, in their order.

    >>> [(piece.server, len(piece)) for piece in cut(5, [2, 0])]
    [(2, 2), (0, 3)]
    """
    ends = [elements * part // len(servers) for part in range(len(servers) + 1)]
    return tuple(
        Piece(server, start, stop) for server, (start, stop) in zip(servers, pairwise(ends), strict=True)
    )


def place(sizes: Sequence[tuple[int, int]], servers: int) -> tuple[tuple[Piece, ...], ...]:
    """Place the pieces of each key, deterministically.

    Args:
        sizes: for each key, elements (at least one) and bytes per element.
        servers: number of servers.

    >>> [[piece.server for piece in each] for each in place([(4, 4), (2_000_000, 4), (9, 4)], 2)]
    [[1], [0, 1], [0]]
    """
    placed: list[tuple[Piece, ...]] = [()] * len(sizes)
    held_bytes = [0] * servers
    small = []
    for key, (elements, element_bytes) in enumerate(sizes):
        if elements < max(SPLIT_ELEMENTS_MIN, servers):
            small.append(key)
            continue
        placed[key] = cut(elements, range(servers))
        for piece in placed[key]:
            held_bytes[piece.server] += len(piece) * element_bytes
    # Largest first: the imbalance at the end is small.
    for key in sorted(small, key=lambda key: (-sizes[key][0] * sizes[key][1], key)):
        server = min(range(servers), key=lambda at: (held_bytes[at], at))
        elements, element_bytes = sizes[key]
        placed[key] = (Piece(server, 0, elements),)
        held_bytes[server] += elements * element_bytes
    return tuple(placed)
