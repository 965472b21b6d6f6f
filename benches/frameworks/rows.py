"""The rows of `python -m benches frameworks`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benches.emulated import hosts, in_emulation
from benches.row import Row
from hocket.artefacts.cluster import Cluster

WORLD, GIGABIT, TRUNK = 4, 1e9, 1e8


def _against_gloo(name: str, cluster: Cluster, target: float) -> list[Row]:
    argv = [sys.executable, "-m", "benches.frameworks.rank"]
    found: dict[str, Any] = in_emulation(cluster, [host.name for host in cluster.hosts], argv)
    return [
        Row(
            name=name,
            what="JAX: median step of shard_map and psum on Gloo, in ours",
            value=found["psum"] / found["hocket"],
            target=target,
            least=True,
            unit="times",
        ),
        Row(name=name, what="JAX: median step of ours", value=1e3 * found["hocket"], unit="ms"),
    ]


def star() -> list[Row]:
    """A rank on each of four hosts at 1 Gbit/s."""
    return _against_gloo("star", hosts([GIGABIT] * WORLD), 1.2)


def racks() -> list[Row]:
    """The same in two racks, ranks listed in alternating order, by nothing but the three lines."""
    return _against_gloo("racks", hosts([GIGABIT] * WORLD, 2, TRUNK, alternating=True), 4.0)


def adapter() -> list[Row]:
    """One rank, 160 leaves."""
    from benches.frameworks.adapter import of_all  # noqa: PLC0415  # loads JAX

    return [
        Row(
            name="adapter",
            what=f"a leaf of {size} bytes, beside two copies",
            value=us,
            target=10.0,
            unit="µs",
        )
        for size, us in of_all().items()
    ]


ROWS: dict[str, Callable[[], list[Row]]] = {"star": star, "racks": racks, "adapter": adapter}
