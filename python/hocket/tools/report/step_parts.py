"""Parts of ranks' steps: medians per rank, for whom each rank waits, and the rank that is last."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from hocket.tools.report.material import BACKWARD, FORWARD, OPTIMIZER, STEP, WAIT, Material
from hocket.tools.report.spans import generations_of

Times = npt.NDArray[np.int64]

COMPUTED = (("forward", FORWARD), ("backward", BACKWARD), ("optimizer", OPTIMIZER))
OWN = ("loading", "forward", "backward", "optimizer")
"""Parts of a step that a rank can be slow in by itself."""
LAST_SHARE_MIN, LATE_SHARE_MIN = 0.5, 0.05
"""Least share of steps in which a rank is last, and least delay as a share of the step, for it to be named."""


class StepTimes(Struct, frozen=True, kw_only=True):
    """Median step of one rank, seconds; a part without records is None.

    `step_s`: from the end of one optimizer's step to the next. `loading_s`: of it, until forward begins, mostly for data.
    `wait_s`: from the end of backward until all means are there; of it, `for_ranks_s` until the last rank's backward has ended.
    """

    rank: int
    host: str
    steps: int
    step_s: float
    loading_s: float | None
    forward_s: float | None
    backward_s: float | None
    wait_s: float | None
    for_ranks_s: float | None
    optimizer_s: float | None

    @property
    def for_network_s(self) -> float | None:
        """Rest of the wait."""
        if self.wait_s is None or self.for_ranks_s is None:
            return None
        return max(0.0, self.wait_s - self.for_ranks_s)

    @property
    def wait_share(self) -> float | None:
        """Share of the step spent waiting."""
        return self.wait_s / self.step_s if self.wait_s is not None and self.step_s > 0 else None


class Last(Struct, frozen=True, kw_only=True):
    """Rank for which the others wait: in which share of the steps, how long (median, seconds), and the part in which it is slowest
    compared with the others' median."""

    rank: int
    host: str
    share: float
    by_s: float
    part: str
    own_s: float
    others_s: float


@dataclass(frozen=True)
class _Waits:
    """Waits of one rank by iteration, ascending: when backward ended, and how long all waits of the iteration took; nanoseconds."""

    iterations: Times
    began: Times
    took: Times


@lru_cache(maxsize=1)
def step_times(material: Material) -> list[StepTimes]:
    """Return the medians of each rank that has recorded steps."""
    waits = _all_waits(material)
    for_ranks = {rank: float(np.median(each)) / 1e9 for rank, each in _for_ranks(material, waits).items()}
    return list(_rows(material, waits, for_ranks))


def last_rank(material: Material, rows: list[StepTimes]) -> Last | None:
    """Return the rank for which the others wait in most steps, if one makes them wait noticeably."""
    if not _compares(material):
        return None
    by_rank = {row.rank: row for row in rows}
    ends = _table({rank: each for rank, each in _all_waits(material).items() if rank in by_rank})
    if ends is None or len(ends[0]) < 2:
        return None
    ranks, began = ends
    order = np.argsort(began, axis=0)
    place, count = np.unique(order[-1], return_counts=True)
    at = int(place[np.argmax(count)])
    share = float(count.max()) / began.shape[1]
    others = np.delete(began, at, axis=0)
    mine = order[-1] == at
    by_s = float(np.median(began[at, mine] - np.median(others[:, mine], axis=0))) / 1e9
    row = by_rank[ranks[at]]
    part, own_s, others_s = _slowest_part(row, [each for rank, each in by_rank.items() if rank != row.rank])
    if share < LAST_SHARE_MIN or by_s < LATE_SHARE_MIN * row.step_s or own_s <= others_s:
        return None
    return Last(
        rank=row.rank, host=row.host, share=share, by_s=by_s, part=part, own_s=own_s, others_s=others_s
    )


def _slowest_part(row: StepTimes, others: list[StepTimes]) -> tuple[str, float, float]:
    """Return the part in which the rank takes most time beyond the others' median, with both times."""

    def times(part: str) -> tuple[str, float, float]:
        theirs = [value for each in others if (value := getattr(each, f"{part}_s")) is not None]
        return part, getattr(row, f"{part}_s") or 0.0, median(theirs) if theirs else 0.0

    return max(map(times, OWN), key=lambda each: each[1] - each[2])


def _compares(material: Material) -> bool:
    """Return whether ends of backward on different ranks say who waits for whom: on one clock, and for this step's gradients."""
    return not generations_of(material) and all(
        material.clock_errors_ns[rank] is not None for rank in material.ranks
    )


def _rows(
    material: Material, waits: Mapping[int, _Waits], for_ranks: Mapping[int, float]
) -> Iterator[StepTimes]:
    for rank in material.ranks:
        steps = material.of_kind(rank, STEP)
        if not len(steps):
            continue
        took = steps["end_ns"] - steps["start_ns"]
        follows = np.diff(steps["instance"].astype(np.int64)) == 1
        loading = (steps["start_ns"][1:] - steps["end_ns"][:-1])[follows]
        whole = loading + took[1:][follows] if follows.any() else took
        yield StepTimes(
            rank=rank,
            host=material.host(rank),
            steps=len(steps),
            step_s=float(np.median(whole)) / 1e9,
            loading_s=float(np.median(loading)) / 1e9 if len(loading) else None,
            wait_s=float(np.median(waits[rank].took)) / 1e9 if rank in waits else None,
            for_ranks_s=for_ranks.get(rank),
            **{f"{name}_s": _median_s(material, rank, kind, len(steps)) for name, kind in COMPUTED},
        )


def _median_s(material: Material, rank: int, kind: int, steps: int) -> float | None:
    """Return the median per step; a part that occurs several times in a step (accumulation) is summed first."""
    spans = material.of_kind(rank, kind)
    if not len(spans):
        return None
    took = (spans["end_ns"] - spans["start_ns"]).astype(np.float64)
    _, where = np.unique(spans["instance"], return_inverse=True)
    return float(np.median(np.bincount(where, took)[:steps])) / 1e9


def _all_waits(material: Material) -> dict[int, _Waits]:
    """Return the waits of the ranks that have recorded some."""
    return {rank: found for rank in material.ranks if (found := _waits(material, rank)) is not None}


def _waits(material: Material, rank: int) -> _Waits | None:
    spans = material.of_kind(rank, WAIT)
    if not len(spans):
        return None
    iterations, where = np.unique(spans["instance"].astype(np.int64), return_inverse=True)
    began = np.full(len(iterations), np.iinfo(np.int64).min)
    np.maximum.at(began, where, spans["start_ns"])
    took = np.bincount(where, spans["end_ns"] - spans["start_ns"]).astype(np.int64)
    return _Waits(iterations, began, took)


def _for_ranks(material: Material, waits: Mapping[int, _Waits]) -> dict[int, Times]:
    """Return, by rank, how long each iteration's last backward was awaited; empty where that cannot be told."""
    if len(waits) < 2 or not _compares(material):
        return {}
    iterations, where = np.unique(
        np.concatenate([each.iterations for each in waits.values()]), return_inverse=True
    )
    latest = np.full(len(iterations), np.iinfo(np.int64).min)
    np.maximum.at(latest, where, np.concatenate([each.began for each in waits.values()]))
    return {
        rank: np.clip(latest[np.searchsorted(iterations, each.iterations)] - each.began, 0, each.took)
        for rank, each in waits.items()
    }


def _table(waits: Mapping[int, _Waits]) -> tuple[list[int], Times] | None:
    """Return ranks, and ends of backward by rank and iteration that all have; None: there is no such iteration."""
    shared: Times | None = None
    for each in waits.values():
        shared = each.iterations if shared is None else np.intersect1d(shared, each.iterations)
    if shared is None or not len(shared):
        return None
    rows = [each.began[np.searchsorted(each.iterations, shared)] for each in waits.values()]
    return list(waits), np.stack(rows)
