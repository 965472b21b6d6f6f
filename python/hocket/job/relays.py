"""Ranks of which neither can call the other: what they send goes through ranks that both reach."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hocket import _native

if TYPE_CHECKING:
    from hocket.job.rendezvous import Job

log = logging.getLogger("hocket.job")

Way = tuple[int, int, list[int]]
"""Two ranks, the lower one first, and the ranks through which their messages go."""

Missed = list[tuple[int, str]]
"""Ranks that a rank called and that did not answer, and why."""


class Relays:
    """Relays of a job's engine: those of the epoch in force; none without an engine. `engine`: None once the job has left it, since
    its memory is as large as the model."""

    def __init__(self) -> None:
        """Begin before there is an engine."""
        self.engine: _native.Engine | None = None

    def __call__(self) -> Sequence[Way]:
        """Return pairs of ranks that cannot reach each other, and the ranks between them."""
        return () if self.engine is None else self.engine.relays


def agree(job: Job, timeout_s: float) -> Callable[[Missed], list[Missed]] | None:
    """Return what tells all ranks which calls were not answered; None on one host, where all can call all."""
    if len(set(job.hosts)) == 1:
        return None

    def told(missed: Missed) -> list[Missed]:
        everyone = job.store.gather("missed", job.rank, job.world, missed, timeout_s)
        return [[(rank, why) for rank, why in each] for each in everyone]

    return told


def tell(job: Job, engine: _native.Engine) -> None:
    """Warn of each pair that cannot reach each other, and name the ranks between."""
    for one, other, way in engine.relays:
        named = [f"rank {rank} on {job.hosts[rank]}" for rank in (one, other, *way)]
        log.warning(
            "hocket: %s and %s cannot reach each other: what they send goes through %s (docs/it-hangs.md, Ports)",
            *named[:2],
            " and ".join(named[2:]),
        )
