"""A search in training, on rank 0: which plan is on trial next, and what trials have shown.

A trial is an epoch of the job itself, in turn with the plan in force, which the pilot times. What counts of a candidate is the
ratio to what the plan in force took just before, times what that plan is known to take: so a machine that gets slower meanwhile
makes no candidate look worse than those before it.
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
"""Plans that ranks cannot prepare, after which a search ends."""


class Proposer(Protocol):
    """What proposes candidates, and learns from trials."""

    @property
    def ended(self) -> str | None:
        """Why there is no other candidate; None: there is."""

    def next(self) -> Plan | None:
        """The next candidate; None: it has ended."""

    def observe(self, plan: Plan, measured_s: float, spread_s: float = 0.0) -> None:
        """The median step with a plan, and the standard error of that."""


@dataclass
class Searching:
    """Of one job. The proposer numbers ranks by the cluster's slots, others see the job's ranks.

    Args:
        job: where its ranks are.
        proposer: asked until it has ended.
        first: tried before anything else, as the planner numbers ranks.
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
    """What the plan in force takes, by the trials so far."""

    def __post_init__(self) -> None:
        """The time runs."""
        self._until_s = self.clock() + self.budget_s
        self._waiting = deque(self.first)

    @property
    def ended(self) -> str:
        """Why there is no other candidate."""
        if self.clock() >= self._until_s:
            return f"its {minutes(self.budget_s)} are over"
        if len(self._refused) >= REFUSED_MAX:
            return f"{REFUSED_MAX} plans were refused"
        return self.proposer.ended or "nothing is left to try"

    def next(self) -> Plan | None:
        """The next candidate, for the job's ranks; None: the search has ended."""
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
        """The last candidate could not be prepared."""
        assert self._asked is not None  # noqa: S101  # it was to be
        self._refused.append(self._asked)

    def tried(self, before_s: float, after_s: float, error_s: float, *, kept: bool) -> Trial:
        """The last candidate took `after_s` give or take `error_s`, and the plan in force `before_s` just before; what counts of
        that."""
        assert self._asked is not None  # noqa: S101  # it was on trial
        known_s = before_s if self._known_s is None else self._known_s
        ratio = known_s / before_s
        trial = trial_of(self._asked, after_s * ratio, error_s * ratio)
        self._known_s = trial.measured_s if kept else known_s
        self.proposer.observe(self._asked, trial.measured_s, trial.error_s)
        return trial


def trial_of(plan: Plan, measured_s: float, error_s: float) -> Trial:
    """What was measured of a plan, as planners number ranks."""
    bare = msgspec.structs.replace(plan, evidence=Evidence(), reason="")
    return Trial(
        plan=bare,
        predicted_s=plan.evidence.predicted_step_s,
        measured_s=measured_s,
        error_s=error_s,
    )


def minutes(time_s: float) -> str:
    """For people.

    >>> minutes(1200), minutes(90)
    ('20 minutes', '90 seconds')
    """
    return f"{time_s / 60:.0f} minutes" if time_s % 60 == 0 else f"{time_s:.0f} seconds"
