"""Events of a rank of the demo's training: progress while it runs, a result at its end."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct


class Event(Struct, frozen=True, kw_only=True):
    """Progress: `step` steps are done, and `what` follows."""

    what: str
    step: int
    loss: float | None = None


class RankResult(Struct, frozen=True, kw_only=True):
    """Result of a rank. `times_s[i]`: from the start of training to the end of step i; `losses[i]`: of this rank's batch."""

    rank: int
    times_s: list[float]
    losses: list[float]
    score_total: float
    score_count: int


def rank_file(directory: Path, rank: int) -> Path:
    """Return the file of a rank's result."""
    return directory / f"rank-{rank}.json"
