"""Samples of this rank's connections: bytes sent on each since its last sample."""

from __future__ import annotations

from collections.abc import Sequence

from hocket import _native
from hocket.job.paths import Paths
from hocket.training.autopilot.traffic import Sample

US = 1e-6


class Connections:
    """Connections of one engine."""

    def __init__(self, engine: _native.Engine, hosts: Sequence[str]) -> None:
        """Begin without a sample. `hosts`: by rank."""
        self._engine, self._paths = engine, Paths(engine, hosts)
        self._before: dict[int, tuple[int, int]] = {}

    def sample(self) -> tuple[Sample, ...]:
        """Return a sample of each connection that has sent enough to tell something; log what has become of paths."""
        self._paths.tell()
        found = (self._of(rank, numbers) for rank, numbers in enumerate(self._engine.connections()))
        return tuple(each for each in found if each is not None and each.tells)

    def _of(self, rank: int, numbers: tuple[int, int, int, int, int, int] | None) -> Sample | None:
        """Return the sample of one connection; None if nothing is known: within a host, and at first."""
        if numbers is None:
            return None
        _, _, _, sent_bytes, busy_us, _ = numbers
        before, self._before[rank] = self._before.get(rank), (sent_bytes, busy_us)
        return None if before is None else Sample(rank, sent_bytes - before[0], (busy_us - before[1]) * US)
