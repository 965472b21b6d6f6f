"""Phases of a worker's iteration: pure computation, overlapped, pure communication, waiting.

Phase 1 is from the last pull received in the previous iteration to the first push sent, phase 2 from the first to the last push
sent, and phase 3 from the first push sent to the last pull received. Computation is phases 1 and 2, waiting is from the first to
the last pull received, and the overlap ratio is 2 / (1 + 3). In Hocket's records a push is the launch of a program, a pull its end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from hocket.tools.analysis.distribution import Distribution
from hocket.tools.analysis.messages import Rows, groups, where
from hocket.tools.analysis.summary import Durations, Summary
from hocket.tools.formats import dlc
from hocket.tools.formats.launches import Iteration

Times = npt.NDArray[np.int64]

PUSH_SEND_WORKER, PULL_RECV_WORKER = 0, dlc.PULL | dlc.RECV


@dataclass(frozen=True)
class Marks:
    """Times of events in some iterations of one worker, by iteration; nanoseconds. Iterations are consecutive."""

    iteration: Times
    first_push: Times
    last_push: Times
    first_pull: Times
    last_pull: Times


class OverlapAtMost(Struct, frozen=True, kw_only=True):
    """Point of a cumulative distribution: `share` of the iterations have at most this overlap ratio."""

    share: float
    ratio: float


class Phases(Struct, frozen=True, kw_only=True):
    """Phases of one worker, over its complete iterations.

    A negative part is left out and counted in its summary: if a push leaves before the last pull of the previous iteration has
    arrived, there is no phase 1. The overlap ratio is of sums over the iterations in which no part is negative.
    """

    node: int
    iterations: int
    iteration: Summary
    computation: Summary | None
    pure_computation: Summary | None
    overlapped: Summary | None
    communication: Summary | None
    waiting: Summary | None
    overlap_ratio: float | None
    overlap_cdf: tuple[OverlapAtMost, ...]
    """Overlap ratios of single iterations, to a millionth."""


def marks_of(rows: Rows) -> list[tuple[int, Marks]]:
    """Return marks per node from rows with complete iterations: those with pushes and pulls."""
    rows = rows[np.isin(rows["code"], (PUSH_SEND_WORKER, PULL_RECV_WORKER))]
    found = []
    for node in np.unique(rows["node"]).tolist():
        for ordered, starts in groups(where(rows, rows["node"] == node), "iteration"):
            pushes = ordered["code"] == PUSH_SEND_WORKER
            late, early = np.iinfo(np.int64).max, np.iinfo(np.int64).min
            time = ordered["time_ns"]
            marks = Marks(
                iteration=ordered["iteration"][starts],
                first_push=np.minimum.reduceat(np.where(pushes, time, late), starts),
                last_push=np.maximum.reduceat(np.where(pushes, time, early), starts),
                first_pull=np.minimum.reduceat(np.where(pushes, late, time), starts),
                last_pull=np.maximum.reduceat(np.where(pushes, early, time), starts),
            )
            found.append((node, marks))
    return found


def marks_of_launches(found: list[Iteration]) -> Marks:
    """Return marks in which a launch is a push, its end a pull. Training begins at 0, and a step starts where the previous one
    ended."""
    rows = []
    for position, each in enumerate(found):
        ready = [launch.ready_ns for launch in each.launches]
        ends = [launch.end_ns for launch in each.launches]
        if position == 0:
            late, early = np.iinfo(np.int64).max, np.iinfo(np.int64).min
            rows.append((each.number - 1, late, early, late, each.start_ns))
        rows.append((each.number, min(ready), max(ready), min(ends), max(ends)))
    columns = np.array(rows, np.int64).T
    return Marks(*columns)


class PhaseCount:
    """Collector of one worker's marks."""

    def __init__(self) -> None:
        self._before: tuple[int, int] | None = None
        self._parts = {
            name: Durations()
            for name in ("computation", "pure", "overlapped", "communication", "waiting", "whole")
        }
        self._in_order = Durations(), Durations()
        """Overlapped time, and pure computation plus pure communication, of iterations without a negative part."""
        self._overlap_ppm = Distribution()
        self._computation: list[Times] = []
        self._numbers: list[Times] = []

    def add(self, marks: Marks) -> None:
        """Collect iterations that come after those so far.

        An iteration without pushes, without pulls or behind a gap is incomplete.
        """
        late, early = np.iinfo(np.int64).max, np.iinfo(np.int64).min
        number, ended = marks.iteration, marks.last_pull
        before_number = np.concatenate([[-2 if self._before is None else self._before[0]], number[:-1]])
        before_ended = np.concatenate([[early if self._before is None else self._before[1]], ended[:-1]])
        whole = (before_number == number - 1) & (before_ended > early) & (number >= 0)
        whole &= (marks.first_push < late) & (ended > early)
        if len(number):
            self._before = int(number[-1]), int(ended[-1])
        began, first, last = before_ended[whole], marks.first_push[whole], marks.last_push[whole]
        parts = {
            "computation": last - began,
            "pure": first - began,
            "overlapped": last - first,
            "communication": ended[whole] - first,
            "waiting": ended[whole] - marks.first_pull[whole],
            "whole": ended[whole] - began,
        }
        for name, values in parts.items():
            self._parts[name].add_ns(values)
        in_order = np.all([values >= 0 for values in parts.values()], axis=0)
        overlapped, rest = parts["overlapped"][in_order], (parts["pure"] + parts["communication"])[in_order]
        self._in_order[0].add_ns(overlapped)
        self._in_order[1].add_ns(rest)
        some = rest > 0
        self._overlap_ppm.add(np.round(1e6 * overlapped[some] / rest[some]).astype(np.int64))
        self._computation.append(parts["computation"])
        self._numbers.append(number[whole])

    @property
    def computation(self) -> tuple[Times, Times]:
        """Iterations, and the computation of each in nanoseconds, without negative ones."""
        none = np.zeros(0, np.int64)
        numbers, times = np.concatenate([none, *self._numbers]), np.concatenate([none, *self._computation])
        return numbers[times >= 0], times[times >= 0]

    @property
    def negative(self) -> dict[str, int]:
        """Number of negative durations of each part."""
        return {name: each.negative for name, each in self._parts.items()}

    def result(self, node: int) -> Phases | None:
        """Return the phases; None when no iteration is complete."""
        names = ("whole", "computation", "pure", "overlapped", "communication", "waiting")
        whole, computation, pure, overlapped, communication, waiting = (
            self._parts[name].summary() for name in names
        )
        if whole is None:
            return None
        overlapped_us, rest_us = (each.total_us for each in self._in_order)
        return Phases(
            node=node,
            iterations=whole.count,
            iteration=whole,
            computation=computation,
            pure_computation=pure,
            overlapped=overlapped,
            communication=communication,
            waiting=waiting,
            overlap_ratio=overlapped_us / rest_us if rest_us > 0 else None,
            overlap_cdf=tuple(
                OverlapAtMost(share=each.share, ratio=each.value / 1e6) for each in self._overlap_ppm.cdf()
            ),
        )
