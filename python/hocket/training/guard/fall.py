"""Fall of the loss a second: judgement of a schedule against training in step, in short trials.

What training in step would gain just now is known of nothing but training in step. So a schedule by which losses do not fall beyond
doubt, or by less than half as fast as when ranks were in step last, is tried in a *round* of three parts: by the schedule, in step,
and by the schedule again, since the same training falls at another slope some iterations later. When a part ends, each rank reports
how fast its losses fell and how long its iterations took, and all judge alike. What a round leaves open is tried again after a rest;
rounds and rests get longer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Literal, NamedTuple

from msgspec import Struct

from hocket.training.guard.drift import INFINITE, NOTHING, Report

FIRST = 9
"""Iterations in step with which a training begins."""

BY_SCHEDULE, IN_STEP = 12, 16
"""Iterations of the first round by the schedule, before and after those in step. A slope's error falls with their number to the
power of 3/2; the one in step counts twice as much."""

LONGER, PART_MAX = 1.5, 96
"""Factor by which parts of a round are longer than those of the round before, and the longest one."""

REST, LONGER_REST = 8, 4
"""Iterations between the first round and the second, and the factor by which each other rest is longer."""

SETTLING = 4
"""Losses at the begin of a part that do not count: of the iteration before, as a loss is logged after its backward, and of those in
which losses fall or rise since ranks are at the anchor now, or leave it."""

LOSSES_MIN = 5
"""Losses from which a slope and its error are known."""

SURE, SIGNIFICANT = 3.0, 4.0
"""Standard errors by which the loss must fall to be in no doubt, and by which it must fall faster in step for a verdict: 3 were enough
in 2 of 5 trainings that learn about as well as in step."""

LITTLE = 0.5
"""Share of the fall in step, when ranks were last in step, below which that by the schedule is in doubt."""

MUCH = 0.2
"""Share of the fall in step by which that by the schedule must be slower."""

OUTLIER = 8.0
"""Times the median beyond which an iteration's time counts as so much: a script may evaluate or save between two."""

Part = Literal["first", "rest", "before", "in step", "after"]


class Slope(Struct, frozen=True):
    """Fall of the loss a second, with its squared standard error."""

    fall: float
    error2: float


class SavedFall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State of a `Fall` between two iterations."""

    part: Part
    round: int
    made: int
    waits: bool
    losses: tuple[float, ...]
    times_s: tuple[float, ...]
    slopes: tuple[Slope, ...]
    rounds: tuple[tuple[float, float, float], ...]
    reference: Slope | None


class Slower(NamedTuple):
    """Verdict on a schedule: falls of the loss a second by it and in step, and the error of their difference."""

    by_schedule: float
    in_step: float
    error: float

    def __str__(self) -> str:
        return (
            f"training in step is faster: the loss fell by {self.by_schedule:.3g} a second, and by {self.in_step:.3g} in step, with "
            f"a standard error of {self.error:.2g}"
        )


class Fall:
    """Trials of a training. `now`: a clock, in seconds. It begins in step."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._reference: Slope | None = None
        """Fall when ranks were in step last."""
        self.begin(1)
        self._enter("first")

    def begin(self, period: int) -> None:
        """Begin with another schedule, which is in force from now on, and repeats after so many iterations."""
        self._period, self._round = period, 0
        self._rounds: list[tuple[float, float, float]] = []
        """By round: falls a second by the schedule and in step, and the squared error of the difference."""
        self._slopes: list[Slope] = []
        self._enter("before")

    @property
    def in_step(self) -> bool:
        """True if ranks are to train in step now."""
        return self._part == "in step"

    def entered(self) -> None:
        """Note that training is by the schedule, or in step, from now on, as this part asks for."""
        self._enter(self._part)

    def logged(self, loss: float) -> None:
        """Take a loss of this rank."""
        if not self._waits and math.isfinite(loss):
            self._losses.append(loss)

    def iterated(self) -> Report | None:
        """Note an iteration; return this rank's report of a part that ends with it."""
        if self._waits:
            return None
        now_s, before_s, self._last_s = self._now(), self._last_s, self._now()
        if before_s is not None:
            self._times_s.append(now_s - before_s)
        self._made += 1
        if self._made < self._length:
            return None
        if self._part == "rest":
            self._enter("before")
            return None
        self._waits = True
        return reported(self._losses[1 if self._part == "first" else SETTLING :], self._times_s)

    def judge(self, reports: Mapping[int, Report]) -> tuple[bool, Slower | None]:
        """Judge the part that has ended by the reports of all ranks. Return whether ranks are to go over to training in step, or
        back, and a verdict, if there is one."""
        slope = slope_of(list(reports.values()))
        part, self._part = self._part, "rest"
        if slope is None:
            self._next_round()
            return part == "in step", None
        if part in ("first", "in step"):
            self._reference = slope
        if part == "first" or (part == "before" and self._surely_falls(slope)):
            self._enter("rest")
            return False, None
        self._slopes.append(slope)
        if part == "before":
            self._part = "in step"
            return True, None
        if part == "in step":
            self._part = "after"
            return True, None
        before, between, after = self._slopes
        # A rise is for the sentinel to judge: one spike says nothing of the fall before it.
        by_schedule = (max(before.fall, 0.0) + max(after.fall, 0.0)) / 2
        error2 = between.error2 + (before.error2 + after.error2) / 4
        self._rounds.append((by_schedule, between.fall, error2))
        self._next_round()
        return False, slower(self._rounds)

    def saved(self) -> SavedFall:
        return SavedFall(
            part=self._part,
            round=self._round,
            made=self._made,
            waits=self._waits,
            losses=tuple(self._losses),
            times_s=tuple(self._times_s),
            slopes=tuple(self._slopes),
            rounds=tuple(self._rounds),
            reference=self._reference,
        )

    def restore(self, saved: SavedFall, period: int) -> None:
        """Go on with a schedule of so many iterations."""
        self.begin(period)
        self._part, self._round, self._made, self._waits = saved.part, saved.round, saved.made, saved.waits
        self._losses, self._times_s = list(saved.losses), list(saved.times_s)
        self._slopes, self._rounds = list(saved.slopes), list(saved.rounds)
        self._reference = saved.reference

    def _surely_falls(self, slope: Slope) -> bool:
        in_step = 0.0 if self._reference is None else self._reference.fall
        return slope.fall > max(SURE * slope.error2**0.5, LITTLE * in_step)

    @property
    def _length(self) -> int:
        """Number of iterations of this part."""
        if self._part == "first":
            return FIRST
        if self._part == "rest":
            return REST * LONGER_REST ** max(self._round - 1, 0)
        least = IN_STEP if self._part == "in step" else max(BY_SCHEDULE, 2 * self._period)
        return round(min(least * LONGER**self._round, max(PART_MAX, least)))

    def _enter(self, part: Part) -> None:
        self._part, self._made, self._waits = part, 0, False
        self._last_s: float | None = None
        self._losses: list[float] = []
        self._times_s: list[float] = []

    def _next_round(self) -> None:
        self._round += 1
        self._slopes = []
        self._enter("rest")


def reported(losses: Sequence[float], times_s: Sequence[float]) -> Report:
    """Return the report of a part with these losses and times of iterations: the fall of the loss in an iteration by least squares,
    its squared standard error, which is below 0 where too few losses are known, and the mean time.

    >>> found = reported([5.0, 4.0, 3.0, 2.0, 1.0], [0.5, 0.5, 0.5, 9.0])
    >>> found.first, found.noise2, found.step_s
    (1.0, 0.0, 1.375)
    """
    longest_s = OUTLIER * median(times_s) if times_s else 0.0
    step_s = fmean(min(each, longest_s) for each in times_s) if times_s else 0.0
    count = len(losses)
    if count < LOSSES_MIN or not step_s > 0:
        return NOTHING
    places = [at - (count - 1) / 2 for at in range(count)]
    wide2, mean = math.fsum(at * at for at in places), fmean(losses)
    slope = math.fsum(at * loss for at, loss in zip(places, losses, strict=True)) / wide2
    rest2 = math.fsum((loss - mean - slope * at) ** 2 for at, loss in zip(places, losses, strict=True))
    return NOTHING._replace(
        first=-slope, noise2=min(rest2 / (count - 2) / wide2, INFINITE), step_s=step_s
    )


def slope_of(reports: Sequence[Report]) -> Slope | None:
    """Return the fall of the ranks' mean loss a second; None: a rank does not know its own. The slowest rank's time counts."""
    if any(each.noise2 < 0 for each in reports):
        return None
    step_s = max(each.step_s for each in reports)
    error2 = fmean(each.noise2 for each in reports) / len(reports)
    return Slope(fmean(each.first for each in reports) / step_s, error2 / step_s**2)


def slower(rounds: Sequence[tuple[float, float, float]]) -> Slower | None:
    """Return a verdict, if rounds say together that the loss falls faster in step. Each counts by its error.

    >>> slower([(0.1, 0.6, 0.01)]) is not None, slower([(0.1, 0.3, 0.01)]), slower([(0.9, 1.0, 0.0001)])
    (True, None, None)
    """
    weights = [1 / max(error2, 1e-300) for *_, error2 in rounds]
    whole = math.fsum(weights)
    by_schedule, in_step = (
        math.fsum(weight * each[at] for weight, each in zip(weights, rounds, strict=True)) / whole
        for at in (0, 1)
    )
    error = whole**-0.5
    if in_step - by_schedule > max(SIGNIFICANT * error, MUCH * abs(in_step)):
        return Slower(by_schedule, in_step, error)
    return None
