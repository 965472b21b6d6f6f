"""Traffic between nodes: bytes and messages per pair of nodes (the communication matrix) and per node."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hocket.tools.analysis.messages import Rows

PAIRS_MAX = 1 << 20
"""Limit of distinguished pairs: a matrix of a thousand nodes."""


class PairVolume(Struct, frozen=True, kw_only=True):
    """Traffic from one node to another."""

    source: int
    destination: int
    messages: int
    bytes: int


class NodeVolume(Struct, frozen=True, kw_only=True):
    node: int
    sent_bytes: int
    received_bytes: int


class Volume(Struct, frozen=True, kw_only=True):
    """Traffic of all pairs and nodes. If both ends of a pair were traced, the sender's records count."""

    nodes: tuple[NodeVolume, ...]
    pairs: tuple[PairVolume, ...]
    pairs_left_out: int

    def matrix_bytes(self) -> list[list[int]]:
        """Bytes from row to column, in the order of `nodes`."""
        place = {each.node: position for position, each in enumerate(self.nodes)}
        matrix = [[0] * len(place) for _ in place]
        for pair in self.pairs:
            matrix[place[pair.source]][place[pair.destination]] = pair.bytes
        return matrix


class VolumeCount:
    def __init__(self) -> None:
        self._pairs: dict[tuple[int, int, bool], list[int]] = {}
        self._left_out = 0

    def add(self, rows: Rows) -> None:
        received = rows["node"] == rows["dst"]
        pairs = rows["src"].astype(np.int64) << 32 | rows["dst"].astype(np.int64) << 1 | received
        found, which, counts = np.unique(pairs, return_inverse=True, return_counts=True)
        sizes = np.zeros(len(found), np.int64)
        np.add.at(sizes, which, rows["length"])
        for pair, count, size in zip(found.tolist(), counts.tolist(), sizes.tolist(), strict=True):
            key = (pair >> 32, pair >> 1 & 0x7FFF_FFFF, bool(pair & 1))
            if key not in self._pairs and len(self._pairs) >= PAIRS_MAX:
                self._left_out += 1
                continue
            known = self._pairs.setdefault(key, [0, 0])
            known[:] = known[0] + count, known[1] + size

    def result(self) -> Volume:
        pairs = []
        for (source, destination, received), (count, size) in sorted(self._pairs.items()):
            if received and (source, destination, False) in self._pairs:
                continue
            pairs.append(PairVolume(source=source, destination=destination, messages=count, bytes=size))
        sent: dict[int, int] = {}
        got: dict[int, int] = {}
        for pair in pairs:
            sent[pair.source] = sent.get(pair.source, 0) + pair.bytes
            got[pair.destination] = got.get(pair.destination, 0) + pair.bytes
        nodes = (
            NodeVolume(node=node, sent_bytes=sent.get(node, 0), received_bytes=got.get(node, 0))
            for node in sorted(sent.keys() | got.keys())
        )
        return Volume(nodes=tuple(nodes), pairs=tuple(pairs), pairs_left_out=self._left_out)
