"""The rows of `python -m benches owners`: four ranks on a star of hosts, and on one host."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from benches.emulated import hosts, in_emulation
from benches.row import Row
from hocket.artefacts.cluster import Cluster, Host

WORLD, GIGABIT = 4, 1e9


def _rows(name: str, cluster: Cluster, slots: list[str]) -> list[Row]:
    argv = [sys.executable, "-m", "benches.owners.rank"]
    found: dict[str, Any] = in_emulation(cluster, slots, argv)
    return [
        Row(
            name=name,
            what="median step, AdamW, against replicas'",
            value=found["owners_s"] / found["replicas_s"],
            target=1.02,
            unit="times",
        ),
        Row(
            name=name,
            what="a rank's state of the optimizer, of 1 / ranks",
            value=found["share"] * found["world"],
            target=1.05,
            unit="times",
        ),
        Row(
            name=name,
            what="elements of parameters that differ from replicas'",
            value=found["differ"],
            target=0,
        ),
    ]


def star() -> list[Row]:
    """A rank on each of four hosts at 1 Gbit/s."""
    cluster = hosts([GIGABIT] * WORLD)
    return _rows("star", cluster, [host.name for host in cluster.hosts])


def one_host() -> list[Row]:
    cluster = Cluster(hosts=(Host(name="h0", slots=WORLD, bandwidth_bit_per_s=GIGABIT),))
    return _rows("one-host", cluster, ["h0"] * WORLD)


ROWS: dict[str, Callable[[], list[Row]]] = {"star": star, "one-host": one_host}
