"""What follows when the members of an elastic job change."""

from __future__ import annotations

from dataclasses import dataclass

QUIESCE_TIMEOUT_S = 10.0
"""For ops that run when an epoch ends: far longer than the longest."""
FENCE_TIMEOUT_S = 0.2
"""How long a neighbour that was left behind may take to end before it is killed."""
DECIDES_IN = 3
"""How often the longest silence the coordinator may take to decide on the next one."""


@dataclass(frozen=True)
class Epoch:
    """Members that go on, by their new ranks: each by its rank in the generation."""

    number: int
    members: tuple[int, ...]
