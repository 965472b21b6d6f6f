"""Rows `star-FRAMEWORK`: a rank on each of four hosts at 1 Gbit/s."""

from __future__ import annotations

from benches.emulated import hosts
from benches.frameworks.measured import GIGABIT, WORLD, against_own
from benches.row import Row


def rows(framework: str) -> list[Row]:
    """Rows against that framework's own collectives."""
    return against_own("star", hosts([GIGABIT] * WORLD), 1.2, framework)
