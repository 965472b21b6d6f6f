"""Epochs that follow changes of an elastic job's members, and their time limits."""

from __future__ import annotations

from dataclasses import dataclass

QUIESCE_TIMEOUT_S = 10.0
"""Time limit for ops that run when an epoch ends: far longer than the longest."""
FENCE_TIMEOUT_S = 0.2
"""Time that a neighbour which was left behind may take to end before it is killed."""


@dataclass(frozen=True)
class Epoch:
    """Members that go on: by new rank, each member's rank in the generation."""

    number: int
    members: tuple[int, ...]
