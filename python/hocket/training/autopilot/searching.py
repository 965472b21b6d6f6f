"""Search in training, on rank 0: the next plan on trial, and the results of trials.

A trial is an epoch of the job itself, in turn with the plan in force, which the pilot times. A candidate's result is its ratio to
the time of the plan in force just before, times the known time of that plan: so a machine that gets slower meanwhile makes no
candidate look worse than those before it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from hocket.artefacts.experience import Trial
from hocket.artefacts.plan import Evidence, Plan
from hocket.planning.for_job import ForJob

REFUSED_MAX = 20
"""Number of plans that ranks cannot prepare, after which a search ends."""


class Proposer(Protocol):
    """Source of candidates, which learns from trials."""

    @property
    def ended(self) -> str | None:
        """Reason why there is no other candidate; None: there is one."""

    def next(self) -> Plan | None:
        """Return the next candidate; None: the search has ended."""

    def observe(self, plan: Plan, measured_s: float, spread_s: float = 0.0) -> None:
        """Learn the median step time with a plan, and its standard error."""


@dataclass
class Searching:
    """Search of one job. The proposer numbers ranks by the cluster's slots, callers see the job's ranks.

    Args:
        job: places of its ranks.
        proposer: asked until it has ended.
        first: plans tried before anything else, with ranks numbered as the planner does.
        budget_s: seconds from now on, after which no other trial begins.
        clock: seconds of any origin.
    """

    job: ForJob
    proposer: Proposer
    budget_s: float
    first: Sequence[Plan] = ()
    clock: Callable[[], float] = time.monotonic
    _until_s: float = field(init=False)
    _waiting: deque[Plan] = field(init=False)
    _asked: Plan | None = field(init=False, default=None)
    _refused: list[Plan] = field(init=False, default_factory=list)
    _known_s: float | None = field(init=False, default=None)
    """Step time of the plan in force, by the trials so far."""

    def __post_init__(self) -> None:
        """Start the clock."""
        self._until_s = self.clock() + self.budget_s
        self._waiting = deque(self.first)

    @property
    def left_s(self) -> float:
        """Seconds in which another trial may begin."""
        return max(0.0, self._until_s - self.clock())

    @property
    def ended(self) -> str:
        """Reason why there is no other candidate."""
        if self.clock() >= self._until_s:
            return f"its {minutes(self.budget_s)} are over"
        if len(self._refused) >= REFUSED_MAX:
            return f"{REFUSED_MAX} plans were refused"
        return self.proposer.ended or "nothing is left to try"

    def next(self) -> Plan | None:
        """Return the next candidate, for the job's ranks; None: the search has ended."""
        self._asked = None
        while self.clock() < self._until_s and len(self._refused) < REFUSED_MAX:
            self._asked = self._waiting.popleft() if self._waiting else self.proposer.next()
            if self._asked is None:
                return None
            if all(self._asked.buckets != each.buckets for each in self._refused):
                return self.job.renamed(self._asked)
            self.refused()
        return None

    def refused(self) -> None:
        """Note that the last candidate could not be prepared."""
        assert self._asked is not None  # noqa: S101  # it was to be
        self._refused.append(self._asked)

    def tried(self, before_s: float, after_s: float, error_s: float, *, kept: bool) -> Trial:
        """Take the result of a trial: the last candidate took `after_s` give or take `error_s`, and the plan in force `before_s`
        just before. Return the trial with the time that counts."""
        assert self._asked is not None  # noqa: S101  # it was on trial
        known_s = before_s if self._known_s is None else self._known_s
        ratio = known_s / before_s
        trial = trial_of(self._asked, after_s * ratio, error_s * ratio)
        self._known_s = trial.measured_s if kept else known_s
        self.proposer.observe(self._asked, trial.measured_s, trial.error_s)
        return trial


def trial_of(plan: Plan, measured_s: float, error_s: float) -> Trial:
    """Return the trial of a plan with its measured time, with ranks numbered as planners do."""
    bare = msgspec.structs.replace(plan, evidence=Evidence(), reason="")
    return Trial(
        plan=bare,
        predicted_s=plan.evidence.predicted_step_s,
        measured_s=measured_s,
        error_s=error_s,
    )


def minutes(time_s: float) -> str:
    """Return the time in words for people.

    >>> minutes(1200), minutes(90)
    ('20 minutes', '90 seconds')
    """
    return f"{time_s / 60:.0f} minutes" if time_s % 60 == 0 else f"{time_s:.0f} seconds"
