"""Rows `racks-FRAMEWORK`: the hosts of `star` in two racks, with ranks in alternating order, unknown to the job."""

from __future__ import annotations

from benches.emulated import hosts
from benches.frameworks.measured import GIGABIT, WORLD, against_own
from benches.row import Row

CLUSTER = hosts([GIGABIT] * WORLD, 2, 1e8, alternating=True)
"""Cluster with a trunk of 100 Mbit/s."""


def rows(framework: str) -> list[Row]:
    """Rows against that framework's own collectives."""
    return against_own("racks", CLUSTER, 4.0, framework)
