"""Cost of choosing by a tuning: the time of its choice against the best, both measured at another time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from hocket.artefacts.algorithms import MEASURED
from hocket.artefacts.tuning import Ladder, Point, Runner, Tuning
from hocket.policy.selection import fastest, flat_bytes, nearest


class Regret(Struct, frozen=True, kw_only=True):
    """One point: `regret` is the chosen algorithm's time over the best one's, less one."""

    collective: str
    runner: Runner
    size_bytes: int
    chosen: str
    chosen_s: float
    best: str
    best_s: float
    worst_s: float

    @property
    def regret(self) -> float:
        """The regret; 0 if the best was chosen."""
        return self.chosen_s / self.best_s - 1


def regrets(tuning: Tuning, measured: Sequence[Ladder]) -> list[Regret]:
    """The choice of `tuning` at every measured point; points that the tuning does not cover are left out."""
    return [each for ladder in measured for point in ladder.points for each in _regret(tuning, ladder, point)]


def _regret(tuning: Tuning, ladder: Ladder, point: Point) -> Iterator[Regret]:
    times_s = {timing.algorithm: timing.median_s for timing in point.timings}
    chosen = _chosen(tuning, ladder, point, sorted(times_s, key=_simplicity))
    if chosen is None:
        return
    best = min(times_s, key=lambda name: times_s[name])
    yield Regret(
        collective=ladder.collective,
        runner=ladder.runner,
        size_bytes=point.size_bytes,
        chosen=chosen,
        chosen_s=times_s[chosen],
        best=best,
        best_s=times_s[best],
        worst_s=max(times_s.values()),
    )


def _chosen(tuning: Tuning, ladder: Ladder, point: Point, among: Sequence[str]) -> str | None:
    if ladder.runner != "engine":
        registered_bytes, other_bytes = flat_bytes(tuning, ladder.shape.ranks)
        limit = registered_bytes if ladder.runner == "thread_registered" else other_bytes
        return "flat" if point.size_bytes <= limit else "parts"
    by = nearest(tuning, ladder.collective, ladder.shape)
    return None if by is None else fastest(by, point.size_bytes, among)


def _simplicity(name: str) -> int:
    return MEASURED.index(name) if name in MEASURED else len(MEASURED)
