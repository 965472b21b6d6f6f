"""Pace of ranks that step alone at different speeds: at half the speed of the fastest, a rank makes half as many steps between
exchanges.

A schedule's iterations are the same on all ranks, and say when they exchange. At its pace, each step of a rank ends one of them or
several, so the program and its turns know nothing of speeds. How many each rank makes follows from times of steps, which travel
with the votes of each exchange; no rank has to know how many others make. Ranks of a site, which step together, are as fast as the
slowest of them.

    fastest of every=6   1  2  3  4  5  6 | exchange
    at half its speed       1     2     3 | exchange
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from hocket.artefacts.local import Sites
from hocket.training.guard.drift import Report

NEARLY = 0.75
"""Part of a step that counts as a whole one where exchanges do not wait for long."""


class Pace:
    """Steps of one rank in the iterations of a period. `steps`: number of them in each; `share`: those per iteration."""

    def __init__(
        self, *, in_time: bool = False, sites: Sites = (), now: Callable[[], float] = time.monotonic
    ) -> None:
        """`in_time`: exchanges wait for a short time only, so a rank comes rather early than late; `sites`: ranks that step
        together; `now`: a clock, in seconds."""
        self._now, self._half, self._sites = now, NEARLY if in_time else 0.5, sites
        self._period = self.steps = 1
        self._credit = 0
        self._resumed_s: float | None = None
        self._busy_s, self._busy = 0.0, 0
        self._next: int | None = None

    def begin(self, period: int) -> None:
        """Begin periods of so many iterations, of as many steps until ranks know their speeds."""
        self.steps = self._period = period
        self._credit, self._next = 0, None
        self.resumes()

    @property
    def share(self) -> float:
        return self.steps / self._period

    def stepped(self) -> int:
        """Note a step; return the number of iterations that end with it."""
        if self._resumed_s is not None:
            self._busy_s += self._now() - self._resumed_s
            self._busy += 1
        self._credit += self._period
        ended, self._credit = divmod(self._credit, self.steps)
        return ended

    def resumes(self) -> None:
        """Note that the script goes on: what came before was no step of its own."""
        self._resumed_s = self._now()

    def step_s(self) -> float:
        """Return the mean time of the steps since times were counted; 0: there was none."""
        return self._busy_s / self._busy if self._busy else 0.0

    def counted(self, reports: Mapping[int, Report], own: int) -> None:
        """Take the times of all ranks' steps with their votes; `own`: this rank among them."""
        self._busy_s, self._busy = 0.0, 0
        known = {rank: each.step_s for rank, each in reports.items() if each.step_s > 0}
        for site in self._sites:
            slowest_s = max((known[rank] for rank in site if rank in known), default=0.0)
            known |= dict.fromkeys(site if slowest_s else (), slowest_s)
        if own in known:
            steps = self._period * min(known.values()) / known[own]
            self._next = max(1, math.floor(steps + 1 - self._half))

    def period_ended(self) -> None:
        """Begin the next period, with as many steps as the last counted times say."""
        self._credit = 0
        self.steps = self.steps if self._next is None else self._next
