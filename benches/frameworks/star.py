"""The row `star`: a rank on each of four hosts at 1 Gbit/s."""

from __future__ import annotations

from benches.emulated import hosts
from benches.frameworks.measured import GIGABIT, WORLD, against_psum
from benches.row import Row


def rows() -> list[Row]:
    """Against JAX's own collectives."""
    return against_psum("star", hosts([GIGABIT] * WORLD), 1.2)
