"""Trial of a plan: its steps against those of the plan before it, until they differ or enough are seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple

from hocket.training.autopilot.caution import Caution
from hocket.training.autopilot.noise import error, own_error

CLEARLY = 3
"""Number of steps that show that a plan is clearly slower."""


@dataclass(frozen=True)
class Candidate:
    """Plan, as far as this machine knows it. `key` tells it from others; None: nobody predicted its step. `updates`: per step, less
    than one if gradients are merged."""

    key: str
    label: str
    predicted_s: float | None = None
    updates: float = 1.0


class Verdict(NamedTuple):
    """Result of a trial: whether the plan stays, its step time, and the standard error of that in a search."""

    stays: bool
    now_s: float
    error_s: float | None = None


class Trial:
    """Comparison with one plan.

    Attributes:
        before: plan that was in force before.
        before_s: its step time.
    """

    def __init__(self, before: Candidate, window_s: Sequence[float], caution: Caution) -> None:
        """Compare with this plan. `window_s`: times of its steps."""
        self.before, self.window_s = before, list(window_s)
        self.before_s = median(window_s)
        self._caution = caution

    def verdict(self, tried: Candidate, steps_s: Sequence[float]) -> Verdict | None:
        """Judge the plan on trial by the times of its steps; None: more are needed."""
        caution, count = self._caution, len(steps_s)
        hopeless = self._hopeless(steps_s)
        if not hopeless and count < caution.trial:
            return None
        now_s = median(steps_s[-caution.window :])
        if not hopeless and count < caution.trial_max and abs(now_s / self.before_s - 1) < caution.clear:
            return None
        # Steps that take as long as before do not speak against a plan that makes more updates.
        longest_s = self.before_s * (1 + caution.clear * (tried.updates > self.before.updates))
        return Verdict(now_s < longest_s, now_s)

    def verdict_in_search(self, steps_s: Sequence[float]) -> Verdict | None:
        """Judge a search's candidate, which has fewer steps."""
        caution, before_s, hopeless = self._caution, self.before_s, self._hopeless(steps_s)
        # The first step of an epoch was not reported.
        counted_s = steps_s[0 if hopeless else caution.search_warm_up - 1 :]
        if len(counted_s) < CLEARLY:
            return None
        now_s = median(counted_s)
        saved_s, noise_s = before_s - now_s, error(self.window_s, counted_s)
        clear = abs(saved_s) > max(caution.clear * before_s, caution.errors * noise_s)
        # To leave a plan too early that is hardly better costs less than to go on with one that is not better.
        doubtful = -saved_s > caution.search_doubt * noise_s
        count = len(counted_s)
        ends = (
            hopeless
            or (clear and saved_s < 0)
            or (count >= caution.search_trial and (clear or doubtful))
            or count >= caution.search_trial_max
        )
        stays = now_s <= before_s * (1 - caution.search_gain)
        return Verdict(stays, now_s, own_error(counted_s)) if ends else None

    def _hopeless(self, steps_s: Sequence[float]) -> bool:
        return len(steps_s) >= CLEARLY and min(steps_s) > self._caution.hopeless * self.before_s
