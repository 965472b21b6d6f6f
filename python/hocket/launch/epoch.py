"""What follows when the members of an elastic job change."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Epoch:
    """Members that go on, by their new ranks: each by its rank in the generation."""

    number: int
    members: tuple[int, ...]
