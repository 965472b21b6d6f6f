"""The rows `racks-FRAMEWORK`: the hosts of `star` in two racks, ranks listed in alternating order, which nobody tells the job."""

from __future__ import annotations

from benches.emulated import hosts
from benches.frameworks.measured import GIGABIT, WORLD, against_own
from benches.row import Row

CLUSTER = hosts([GIGABIT] * WORLD, 2, 1e8, alternating=True)
"""The trunk carries 100 Mbit/s."""


def rows(framework: str) -> list[Row]:
    """Against that framework's own collectives."""
    return against_own("racks", CLUSTER, 4.0, framework)
