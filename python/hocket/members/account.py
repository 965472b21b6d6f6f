"""Account of an elastic job's work over time: what its members commit, and what changes of members cost (`artefacts.goodput`).

Members' reports of what stands are points in time. Between two points nothing has changed, and the time between them tells the
pace of so many ranks, or something has: then the work that is missing against that pace was lost by it. The time of a loss that
was spent on waiting for others, or on doing a step again, is noted as it passes; the rest of it is standing still.

All numbers are sums by number of ranks, so an account takes no more memory when a job changes for days. Times are seconds of one
monotonic clock, which the caller reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from hocket.artefacts.goodput import Goodput, Lost

Cause = Literal["lost", "joined", "left"]
QUIET_STEPS_MIN = 8
"""Steps from which the pace of a number of ranks is known; with fewer, that of the nearest number counts."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """Work that stood at a time, since the generation's ranks met.

    Attributes:
        steps: number of steps of the job, from its beginning.
        shares: sum over those steps of the ranks in each.
        samples: number of samples; 0 where nobody knows them.
    """

    at_s: float
    generation: int
    steps: int
    shares: int
    samples: int


@dataclass(kw_only=True)
class Sums:
    """Sums of work, and of ranks' time. `ranks_s`: seconds times ranks."""

    steps: int = 0
    shares: int = 0
    samples: int = 0
    time_s: float = 0.0
    ranks_s: float = 0.0

    def add(self, before: Point, now: Point, ranks_s: float) -> None:
        """Add the work and the time between two points."""
        met = now.generation > before.generation
        self.steps += now.steps - before.steps
        self.shares += now.shares - (0 if met else before.shares)
        self.samples += now.samples - (0 if met else before.samples)
        self.time_s += now.at_s - before.at_s
        self.ranks_s += ranks_s

    def work(self, *, in_samples: bool) -> int:
        """Return the work in its unit."""
        return self.samples if in_samples else self.shares


@dataclass
class Change:
    """Change of members that is under way: its cause, its first time, and how far it has come."""

    cause: Cause
    since_s: float
    resumed_s: float | None = None
    again: bool = False
    gone: list[tuple[int, float]] = field(default_factory=list)
    """Numbers of ranks that were lost, each with the time."""


class Account:
    """Account of one job, in one launcher."""

    def __init__(self) -> None:
        self._ranks: list[tuple[float, int]] = []
        """Numbers of ranks, each with the time from which it holds; all but the first are later than the last point."""
        self._began_with = 0
        self._before: Point | None = None
        self._first: Point | None = None
        """First step, which has no time; None: another launcher has counted it."""
        self._change: Change | None = None
        self._joining = False
        self._waits_since_s: float | None = None
        self._leave: int | None = None
        """Number of ranks after those that are about to leave in order."""
        self._quiet: defaultdict[int, Sums] = defaultdict(Sums)
        self._disturbed: defaultdict[tuple[Cause, int], Sums] = defaultdict(Sums)
        self._waited: defaultdict[int, float] = defaultdict(float)
        self._again: defaultdict[int, float] = defaultdict(float)
        """Ranks' seconds of waiting for others, and of doing steps again."""

    def begin(self, ranks: int, now_s: float, *, counts_first: bool = True) -> None:
        """Begin with so many ranks. `counts_first`: their first step is the job's, or else another launcher has counted it."""
        self._began_with = ranks
        self._first = Point(at_s=now_s, generation=0, steps=0, shares=0, samples=0) if counts_first else None
        self._set_ranks(ranks, now_s)

    def lost(self, here: int, now_s: float) -> None:
        """Note a decision after a loss: `here` ranks go on."""
        change = self._changes("lost", now_s)
        change.gone.append((max(0, self._ranks_now - here), now_s))
        self._set_ranks(here, now_s)

    def leave(self, here: int, now_s: float) -> None:
        """Note that `here` ranks go on after those that are about to leave in order."""
        self._changes("left", now_s)
        self._leave = here

    def joined(self, here: int, now_s: float) -> None:
        """Note that `here` ranks have met, with newcomers among them."""
        self._changes("joined", now_s)
        self._set_ranks(here, now_s)

    def waits(self, left: int, now_s: float) -> None:
        """Note that the `left` ranks are too few, and wait for others."""
        change = self._changes("lost", now_s)
        change.gone.append((max(0, self._ranks_now - left), now_s))
        self._set_ranks(left, now_s)
        if self._waits_since_s is None:
            self._waits_since_s = now_s

    def enough(self, now_s: float) -> None:
        """Note that ranks no longer wait for others, if they did."""
        if self._waits_since_s is not None:
            self._waited[self._ranks_now] += (now_s - self._waits_since_s) * self._ranks_now
            self._waits_since_s = None

    def resumed(self, now_s: float, *, again: bool) -> None:
        """Note that training goes on. `again`: a step is reduced anew."""
        if self._change is not None:
            self._change.resumed_s, self._change.again = now_s, again
        if self._leave is not None:
            self._set_ranks(self._leave, now_s)

    def stands(self, point: Point, *, joining: bool) -> bool:
        """Note what stands. Return whether a change has ended by it: a step stands since training has gone on. `joining`: newcomers
        take the state from then on, or are awaited."""
        before = self._before
        if before is None:
            if self._first is not None:
                self._first = point
            return self._take(point, joining=joining)
        if (point.generation, point.steps) <= (before.generation, before.steps) or point.at_s <= before.at_s:
            self._joining = joining
            return False
        change, ranks, ranks_s = (
            self._change,
            self._ranks_at(point.at_s),
            self._ranks_s(before.at_s, point.at_s),
        )
        if change is not None and point.at_s <= change.since_s:
            change = None  # the last step before it
        if change is None and self._joining:
            change = Change("joined", before.at_s)
        if change is None:
            self._quiet[ranks].add(before, point, ranks_s)
        else:
            self._disturbed[change.cause, ranks].add(before, point, ranks_s)
            self._again[ranks] += self._done_again_s(change, before, point, ranks, ranks_s)
        return self._take(point, joining=joining)

    def goodput(self) -> Goodput | None:
        """Goodput until the last point; None while no pace is known."""
        all_sums = [*self._quiet.values(), *self._disturbed.values()]
        in_samples = any(each.samples for each in all_sums)
        paces = {
            ranks: each.ranks_s / each.work(in_samples=in_samples)
            for ranks, each in self._quiet.items()
            if each.ranks_s and each.work(in_samples=in_samples)
        }
        known = [ranks for ranks in paces if self._quiet[ranks].steps >= QUIET_STEPS_MIN]
        if not paces:
            return None

        def work(ranks_s: float, ranks: int) -> float:
            """Undisturbed work of so many ranks in that sum of their times."""
            return ranks_s / paces[_nearest(known or paces, ranks)]

        lost: defaultdict[Cause, float] = defaultdict(float)
        for (cause, ranks), sums in self._disturbed.items():
            lost[cause] += work(sums.ranks_s, ranks) - sums.work(in_samples=in_samples)
        waited = sum(work(each, ranks) for ranks, each in self._waited.items())
        again = sum(work(each, ranks) for ranks, each in self._again.items())
        again = min(again, max(0.0, lost["lost"] - waited))
        by_cause = Lost(
            standing_still=lost["lost"] - waited - again,
            done_again=again,
            joining=lost["joined"],
            leaving=lost["left"],
            too_few_ranks=waited,
        )
        first = 0 if self._first is None else (self._first.samples if in_samples else self._first.shares)
        committed = first + sum(each.work(in_samples=in_samples) for each in all_sums)
        time_s = sum(each.time_s for each in all_sums)
        return Goodput(
            unit="samples" if in_samples else "steps of a rank",
            committed=committed,
            undisturbed=committed + by_cause.total,
            all_along=first + work(time_s * self._began_with, self._began_with),
            steps=sum(each.steps for each in all_sums) + (0 if self._first is None else self._first.steps),
            time_s=time_s,
            ranks_s=sum(each.ranks_s for each in all_sums),
            lost=by_cause,
        )

    @property
    def _ranks_now(self) -> int:
        return self._ranks[-1][1] if self._ranks else 0

    def _ranks_at(self, at_s: float) -> int:
        return next((ranks for since_s, ranks in reversed(self._ranks) if since_s <= at_s), self._ranks_now)

    def _set_ranks(self, ranks: int, now_s: float) -> None:
        self._leave = None
        if ranks != self._ranks_now:
            self._ranks.append((now_s, ranks))

    def _changes(self, cause: Cause, now_s: float) -> Change:
        """Change under way. A loss decides the cause, since others wait until it is settled."""
        if self._change is None:
            self._change = Change(cause, now_s)
        elif cause == "lost":
            self._change.cause = cause
        self._change.resumed_s = None
        return self._change

    def _take(self, point: Point, *, joining: bool) -> bool:
        """Go on from a point. Return whether a change has ended with it."""
        self._before, self._joining = point, joining
        later = [each for each in self._ranks if each[0] > point.at_s]
        self._ranks = self._ranks[max(0, len(self._ranks) - len(later) - 1) :]
        ended = self._change is not None and self._change.resumed_s is not None
        if ended:
            self._change = None
        return ended

    def _ranks_s(self, begin_s: float, end_s: float) -> float:
        """Sum of ranks' times between two times."""
        until = [*self._ranks, (end_s, 0)]
        spans = (
            (max(begin_s, since_s), min(end_s, to_s), ranks)
            for (since_s, ranks), (to_s, _) in pairwise(until)
        )
        return sum(max(0.0, to_s - since_s) * ranks for since_s, to_s, ranks in spans)

    def _done_again_s(self, change: Change, before: Point, now: Point, ranks: int, ranks_s: float) -> float:
        """Ranks' seconds for which a step was done again: by those that are left, once training went on, and by lost ones before,
        at most a step. With a pace, no more than the change has cost."""
        if change.cause != "lost" or change.resumed_s is None or not change.again:
            return 0.0
        usual = self._usual(ranks)
        step_s = float("inf") if usual is None else usual.time_s / usual.steps
        again_s = (now.at_s - max(before.at_s, change.resumed_s)) * ranks
        again_s += sum(count * min(step_s, max(0.0, gone_s - before.at_s)) for count, gone_s in change.gone)
        if usual is None:
            return again_s
        shares = now.shares - (0 if now.generation > before.generation else before.shares)
        return min(again_s, max(0.0, ranks_s - shares * usual.ranks_s / usual.shares))

    def _usual(self, ranks: int) -> Sums | None:
        """Sums of undisturbed steps of so many ranks, or of the nearest number that is known; None if none is."""
        known = {each: sums for each, sums in self._quiet.items() if sums.steps and sums.shares}
        return known[_nearest(known, ranks)] if known else None


def _nearest(known: Collection[int], ranks: int) -> int:
    return min(known, key=lambda each: (abs(each - ranks), each))
