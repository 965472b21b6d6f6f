"""Sizes of messages, per layer, per direction, and of the model."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hocket.tools.analysis.distribution import Distribution, Quantile
from hocket.tools.analysis.messages import Rows
from hocket.tools.formats import dlc

LAYERS_MAX = 1 << 16
"""Limit of distinguished layers; more keys than any model has mean a damaged trace, and are counted together."""


class LayerSizes(Struct, frozen=True, kw_only=True):
    """Messages of one layer (key or program)."""

    layer: int
    name: str
    messages: int
    bytes: int
    shortest_bytes: int
    longest_bytes: int


class Sizes(Struct, frozen=True, kw_only=True):
    """Sizes of all messages of training and set-up, by each node's records: a message between two traced nodes counts twice."""

    messages: int
    bytes: int
    sent_bytes: int
    received_bytes: int
    shortest_bytes: int | None
    longest_bytes: int | None
    cdf_bytes: tuple[Quantile, ...]
    layers: tuple[LayerSizes, ...]
    layers_left_out: int


class SizeCount:
    def __init__(self) -> None:
        self._all = Distribution()
        self._sent = 0
        self._layers: dict[int, list[int]] = {}
        self._left_out: set[int] = set()

    def add(self, rows: Rows) -> None:
        if not len(rows):
            return
        self._all.add(rows["length"])
        self._sent += int(rows["length"][rows["node"] == rows["src"]].sum())
        training = rows["code"] != dlc.SETUP
        keys, lengths = rows["key"][training], rows["length"][training]
        order = np.argsort(keys, kind="stable")
        keys, lengths = keys[order], lengths[order]
        starts = np.flatnonzero(np.diff(keys, prepend=keys[:1] - 1))
        if not len(starts):
            return
        found = zip(
            keys[starts].tolist(),
            np.diff(starts, append=len(keys)).tolist(),
            np.add.reduceat(lengths, starts).tolist(),
            np.minimum.reduceat(lengths, starts).tolist(),
            np.maximum.reduceat(lengths, starts).tolist(),
            strict=True,
        )
        for key, count, total, least, most in found:
            known = self._layers.get(key)
            if known is not None:
                known[:] = known[0] + count, known[1] + total, min(known[2], least), max(known[3], most)
            elif len(self._layers) < LAYERS_MAX:
                self._layers[key] = [count, total, least, most]
            elif len(self._left_out) < LAYERS_MAX:
                self._left_out.add(key)

    def result(self, names: dict[int, str]) -> Sizes:
        """Return the counts; `names` has the names of layers, if known."""
        layers = (
            LayerSizes(
                layer=key,
                name=names.get(key, f"key {key}"),
                messages=count,
                bytes=total,
                shortest_bytes=least,
                longest_bytes=most,
            )
            for key, (count, total, least, most) in sorted(self._layers.items())
        )
        return Sizes(
            messages=self._all.count,
            bytes=self._all.total,
            sent_bytes=self._sent,
            received_bytes=self._all.total - self._sent,
            shortest_bytes=self._all.at(0.0),
            longest_bytes=self._all.at(1.0),
            cdf_bytes=self._all.cdf(),
            layers=tuple(layers),
            layers_left_out=len(self._left_out),
        )
