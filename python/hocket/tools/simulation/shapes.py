"""Networks by a few numbers, as a command or a sweep names them: which shape, how large, how fast."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from msgspec import Struct

from hocket.artefacts.network import LATENCY_S, Network
from hocket.errors import UsageError
from hocket.tools.simulation.networks import fat_tree, leaf_spine, star, torus

Kind = Literal["star", "leaf-spine", "fat-tree", "torus"]

EXTENTS = {
    "star": "its hosts, such as 16",
    "leaf-spine": "its leaves and the hosts of each, such as 4x8",
    "fat-tree": "the ports of its switches, such as 8",
    "torus": "its extents, such as 4x4x4",
}
"""Meaning of the extents of each shape."""

OWN = {"nics": "star", "oversubscription": "leaf-spine", "spines": "leaf-spine"}
"""Settings that one shape has alone."""

HOSTS_MAX = 1 << 16
"""Limit of hosts: each link takes some hundred bytes, and a host has up to three wires."""

DIMENSIONS_MAX = 6
"""Limit of extents of a torus: those of the largest built have six."""


class Shape(Struct, frozen=True, kw_only=True):
    """Shape of a network whose hosts all have the same links. Rates count payload; `latency_s` is one way, in a torus of a hop."""

    kind: Kind
    extents: tuple[int, ...]
    bit_per_s: float
    latency_s: float = LATENCY_S
    ranks_per_host: int = 1
    nics: int = 1
    oversubscription: float = 1.0
    spines: int = 1

    def network(self, world: int) -> Network:
        """Return the network of the first `world` ranks, which fill its hosts in order.

        Raises UsageError: extents or settings do not fit the shape, it is too large, or has too few places.

        >>> Shape(kind="torus", extents=(2, 3), bit_per_s=1e9).network(4).hosts
        (0, 1, 2, 3)
        """
        self._check()
        slots = self._hosts() * self.ranks_per_host
        if world > slots:
            raise UsageError(f"{world} ranks do not fit a {self.kind} with {slots} places")
        whole = self._whole()
        return replace(whole, hosts=whole.hosts[:world])

    def _whole(self) -> Network:
        rate, latency_s, ranks = self.bit_per_s, self.latency_s, self.ranks_per_host
        match self.kind:
            case "star":
                return star(
                    self.extents[0], bit_per_s=rate, latency_s=latency_s, ranks_per_host=ranks, nics=self.nics
                )
            case "leaf-spine":
                return leaf_spine(
                    *self.extents,
                    bit_per_s=rate,
                    oversubscription=self.oversubscription,
                    spines=self.spines,
                    latency_s=latency_s,
                    ranks_per_host=ranks,
                )
            case "fat-tree":
                return fat_tree(self.extents[0], bit_per_s=rate, latency_s=latency_s, ranks_per_host=ranks)
            case "torus":
                return torus(self.extents, bit_per_s=rate, latency_s=latency_s, ranks_per_host=ranks)

    def _check(self) -> None:
        most = {"leaf-spine": 2, "torus": DIMENSIONS_MAX}.get(self.kind, 1)
        least = 2 if self.kind == "leaf-spine" else 1
        if not least <= len(self.extents) <= most or min(self.extents, default=0) < 1:
            given = "x".join(map(str, self.extents))
            raise UsageError(f"a {self.kind} of `{given}`\nhint: give {EXTENTS[self.kind]}")
        default = {name: getattr(Shape(kind=self.kind, extents=(), bit_per_s=1.0), name) for name in OWN}
        for name, kind in OWN.items():
            if getattr(self, name) != default[name] and kind != self.kind:
                raise UsageError(f"{name} of a {self.kind}: only a {kind} has it")
        if not (0 < self.latency_s < math.inf):
            raise UsageError(f"a latency of {self.latency_s} s: it must be above 0 and finite")
        if self.ranks_per_host < 1 or self._hosts() > HOSTS_MAX:
            raise UsageError(
                f"a {self.kind} of {self._hosts():,} hosts: it may have {HOSTS_MAX:,}, each with a rank at least"
            )

    def _hosts(self) -> int:
        if self.kind == "fat-tree":
            return self.extents[0] ** 3 // 4
        return math.prod(self.extents)
