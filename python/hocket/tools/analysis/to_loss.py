"""Time to the same loss of two ways to train: when each comes to the loss that the synchronous run of its seed has after four
fifths of its steps. The last fifth is for a way that learns as well, and is behind by noise alone.

Losses of single batches are noisy, so a curve is its running mean over a tenth of the run, as many losses as the final loss is the
mean of; the moment of a mean is the middle of its losses. A curve comes to a loss where it is first at or below it, on a line
between two means. Where noise lets the synchronous run do so before four fifths, that moment counts, as it does for the other way.
A loss that is no number is infinite.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean, median

from msgspec import Struct

from hocket.tools.analysis.paired import WINDOW, settled

GOAL_AT = 0.8
"""Part of the synchronous run after which its loss is the one to reach."""

SURE = 2.0
"""Standard errors by which a run's loss has to fall; less is what its noise alone may do."""


class Curve(Struct, frozen=True, kw_only=True):
    """Losses of a run in the order in which they were logged; `steps` that it took, and mean seconds of one."""

    losses: tuple[float, ...]
    steps: int
    step_s: float


class Reach(Struct, frozen=True, kw_only=True):
    """One seed: the loss to reach, steps of each way to it, and seconds of a step of each. None: no loss to reach, as the
    synchronous run diverged or did not fall; or not reached in the steps given, as by a run that diverged later."""

    goal: float | None
    base_steps: float | None
    other_steps: float | None
    base_step_s: float
    other_step_s: float

    @property
    def base_s(self) -> float | None:
        """Seconds that the synchronous run takes."""
        return None if self.base_steps is None else self.base_steps * self.base_step_s

    @property
    def other_s(self) -> float | None:
        """Seconds that the other way takes."""
        return None if self.other_steps is None else self.other_steps * self.other_step_s


class Ratio(Struct, frozen=True, kw_only=True):
    """Ratio of the other way to the synchronous one: of the time to the loss, of the steps to it, of the seconds of a step. Medians
    over seeds with a loss to reach, where a seed that does not reach it is later than all; `low` and `high`: the times of the
    first and the last seed that reach it."""

    time: float
    steps: float
    step_s: float
    low: float
    high: float


class ToLoss(Struct, frozen=True, kw_only=True):
    """Comparison by time. `seeds` are in order; `ratio` is None where half of those with a loss to reach, or more, do not reach it,
    and `goal`, their mean loss to reach, where most have none."""

    seeds: tuple[Reach, ...]
    goal: float | None
    ratio: Ratio | None

    @property
    def reached(self) -> int:
        """Number of seeds that reach their loss."""
        return sum(each.other_steps is not None for each in self.seeds)

    @property
    def missed(self) -> int:
        """Number of seeds with a loss to reach that do not reach it."""
        return sum(each.goal is not None for each in self.seeds) - self.reached


def to_loss(base: Sequence[Curve], other: Sequence[Curve], *, both: bool = False) -> ToLoss:
    """Compare curves with the same seeds, in the same order. `both`: where the other way ends above the loss to reach, that is its
    own last one, to which both come.

    >>> slow = Curve(losses=tuple(2.0 - each / 100 for each in range(100)), steps=100, step_s=0.2)
    >>> fast = Curve(losses=tuple(2.0 - each / 50 for each in range(100)), steps=100, step_s=0.3)
    >>> found = to_loss([slow, slow], [fast, fast]).ratio
    >>> round(found.steps, 2), round(found.step_s, 2), round(found.time, 2)
    (0.51, 1.5, 0.76)
    """
    seeds = tuple(_reach(*pair, both=both) for pair in zip(base, other, strict=True))
    goals = [each.goal for each in seeds if each.goal is not None]
    if 2 * len(goals) <= len(seeds):
        return ToLoss(seeds=seeds, goal=None, ratio=None)
    times = [_over(each.other_s, each.base_s) for each in seeds if each.goal is not None]
    steps = [_over(each.other_steps, each.base_steps) for each in seeds if each.goal is not None]
    ratio = None
    if math.isfinite(median(times)):
        finite = [each for each in times if math.isfinite(each)]
        ratio = Ratio(
            time=median(times),
            steps=median(steps),
            step_s=median(each.other_step_s / each.base_step_s for each in seeds),
            low=min(finite),
            high=max(finite),
        )
    return ToLoss(seeds=seeds, goal=fmean(goals), ratio=ratio)


def _over(other: float | None, base: float | None) -> float:
    return math.inf if other is None or base is None else other / base


def smoothed(losses: Sequence[float], window: int) -> list[float]:
    """Return means over `window` losses, each up to one of them, from the first that has as many.

    >>> smoothed([4.0, 2.0, 3.0], 2)
    [3.0, 2.5]
    """
    return [fmean(losses[end - window : end]) for end in range(window, len(losses) + 1)]


def fallen(losses: Sequence[float], to: float, window: int) -> bool:
    """Return whether a mean is below the first one by more than noise, whose size follows from neighbouring losses.

    >>> fallen([3.0, 2.9, 2.0, 1.9], 1.95, 2), fallen([3.0, 2.0, 3.0, 2.0], 2.0, 2)
    (True, False)
    """
    moves = [after - before for before, after in pairwise(losses) if math.isfinite(after - before)]
    noise = fmean(each**2 for each in moves) / 2 if moves else math.inf
    return fmean(losses[:window]) - to > SURE * math.sqrt(2 * noise / window)


def _reach(base: Curve, other: Curve, *, both: bool) -> Reach:
    tenth = min(base.steps, other.steps) / WINDOW
    ways = [_Smooth(each, tenth) for each in (base, other)]
    goal = ways[0].means[int(GOAL_AT * (len(ways[0].means) - 1))]
    if both:
        goal = max(goal, ways[1].means[-1])
    fall = all(each.ends and fallen(each.losses, goal, each.window) for each in (ways if both else ways[:1]))
    taken = [each.steps_to(goal) if fall else None for each in ways]
    return Reach(
        goal=goal if fall else None,
        base_steps=taken[0],
        other_steps=taken[1],
        base_step_s=base.step_s,
        other_step_s=other.step_s,
    )


class _Smooth:
    """A curve and its means over as many losses as it logged in some steps. `ends`: its last losses are numbers."""

    def __init__(self, curve: Curve, steps: float) -> None:
        self.losses = [each if math.isfinite(each) else math.inf for each in curve.losses]
        self.steps_each = curve.steps / len(self.losses)
        self.window = max(1, int(steps / self.steps_each))
        self.means = smoothed(self.losses, self.window)
        self.ends = math.isfinite(settled(self.losses))

    def steps_to(self, goal: float) -> float | None:
        """Return steps until the means are at `goal`; None: never, or the run has diverged since."""
        at = next((at for at, loss in enumerate(self.means) if loss <= goal), None)
        if at is None or not self.ends:
            return None
        before = self.means[at - 1] if at else math.inf
        back = (goal - self.means[at]) / (before - self.means[at])
        return (at - back + (self.window + 1) / 2) * self.steps_each
