"""The row `racks`: the hosts of `star` in two racks, ranks listed in alternating order, which nobody tells the job."""

from __future__ import annotations

from benches.emulated import hosts
from benches.frameworks.measured import GIGABIT, WORLD, against_psum
from benches.row import Row

CLUSTER = hosts([GIGABIT] * WORLD, 2, 1e8, alternating=True)
"""The trunk carries 100 Mbit/s."""


def rows() -> list[Row]:
    """Against JAX's own collectives."""
    return against_psum("racks", CLUSTER, 4.0)
