"""Oversight of a session's convergence: the guard before a schedule is used, and the sentinel while it is in force.

A session begins with synchronous updates. They show how large updates are, and how noisy gradients. Then the guard judges the
plan's schedule by the live optimizer; a schedule that fails gives way to the next safer one of the plan, at last to synchronous
updates. From then on the sentinel watches the norm of applied gradients, and the loss where the script logs it. Its alarm ends the
schedule in force, and every one that is as risky. All ranks decide the same at the same iteration, and each decision is logged and
written into the trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from hocket import typed
from hocket.artefacts.change import What
from hocket.artefacts.learning import Learning
from hocket.artefacts.plan import Begun, Due, Plan, Ready, Schedule, Turn
from hocket.job.rendezvous import Job
from hocket.planning.admission import judged, risk_of
from hocket.planning.guard import accepted, described, used
from hocket.training.guard.gauge import GAUGED, Gauge, Report, learning_of
from hocket.training.guard.notes import Notes
from hocket.training.guard.sentinel import (
    SPREAD_GROWING,
    SPREAD_MIN,
    WINDOW_MIN,
    Alarm,
    SavedWatch,
    Watch,
)
from hocket.training.memory.framework import Framework
from hocket.training.memory.turns import is_synchronous


class SavedOversight(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State of an `Oversight` between two iterations; `seen`: report of its rank's gauge."""

    norm: SavedWatch
    loss: SavedWatch
    ended: tuple[float, ...]
    measures: bool
    watches: bool
    seen: Report


class Oversight:
    """Oversight of one session whose schedules are not all synchronous."""

    def __init__(self, framework: Framework, job: Job, gauge: Gauge, trace: Path | None) -> None:
        """Begin. `trace`: the directory of the trace, if this model's is written."""
        self._framework, self._job, self._gauge = framework, job, gauge
        self._notes = Notes(trace)
        self._norm, self._loss = Watch("the norm of applied gradients"), Watch("the loss")
        self._ended: list[float] = []
        self._measures = self._watches = self._uncorrected = False

    @property
    def learns(self) -> bool:
        """True if synchronous updates are still to be seen: the same on all ranks."""
        return self._norm.learns

    @property
    def alarm(self) -> Alarm | None:
        return self._norm.alarm or self._loss.alarm

    @property
    def looks(self) -> bool:
        """True if applied gradients are to be seen."""
        return self._measures or self._watches

    @property
    def retreated(self) -> bool:
        """True if an alarm has ended a schedule."""
        return bool(self._ended)

    def saved(self) -> SavedOversight:
        return SavedOversight(
            norm=self._norm.saved(),
            loss=self._loss.saved(),
            ended=tuple(self._ended),
            measures=self._measures,
            watches=self._watches,
            seen=self._gauge.report(None),
        )

    def restore(self, saved: SavedOversight) -> None:
        self._norm.restore(saved.norm)
        self._loss.restore(saved.loss)
        self._ended = list(saved.ended)
        self._measures, self._watches = saved.measures, saved.watches
        self._gauge.resume(saved.seen)

    def see(self, norm: float) -> None:
        """Take the norm of applied gradients: the same on all ranks. Where nothing is late without correction, it says nothing
        beside a logged loss: it may grow tenfold while a model begins to learn."""
        if self.looks and (self._measures or self._uncorrected or self._loss.learns):
            self._norm.see(norm)

    def logged(self, loss: float) -> None:
        """Take a loss that this rank's script has logged."""
        if self.looks:
            self._loss.see(loss)

    def schedule(self, plan: Plan, iteration: int, epoch: int) -> Schedule:
        """Return the schedule of a plan's iterations from now on. All ranks call it at the same iteration, and get the same."""
        self._measures = self._watches = False
        if is_synchronous(plan.schedule):
            return plan.schedule
        if self.learns:
            self._measures = True
            return measuring(plan)
        if self.alarm is not None:
            # The alarm came while the schedule before was being ended.
            self._forgive()
        found = self._admitted(plan, iteration, epoch)
        self._watches = not is_synchronous(found)
        self.watch_as(found)
        return found

    def watch_as(self, schedule: Schedule) -> None:
        """Watch the norms of updates by this schedule."""
        self._uncorrected = schedule.steps != "own first" and schedule.delay_max > 0
        self._norm.assume(SPREAD_MIN if self._uncorrected else SPREAD_GROWING)

    def gauges(self, iteration: int) -> bool:
        """Return whether an iteration of `measuring` has complete gradients before any of them leaves, which are to be copied."""
        return self._measures and self._gauge.wants and iteration % WINDOW_MIN < GAUGED

    def retreat(self, schedule: Schedule, plan: Plan, iteration: int, epoch: int) -> None:
        """End a schedule, as the ranks have agreed."""
        seen = self.alarm or "another rank's updates"
        self._ended.append(risk_of(schedule))
        self._forgive()
        self._note(
            "retreated",
            plan,
            iteration,
            epoch,
            f"gradients are less merged and less late from now on: {seen}",
        )

    def _forgive(self) -> None:
        for watch in (self._norm, self._loss):
            watch.again()

    def _admitted(self, plan: Plan, iteration: int, epoch: int) -> Schedule:
        """Return the first of the plan's schedules that is safer than those that ended, and that rank 0's guard lets pass."""
        job = self._job
        mine = msgspec.to_builtins(self._gauge.report(self._framework.learning()))
        given = job.store.gather("guard/seen", job.rank, job.world, mine, job.settings.timeout_s)
        schedules = (plan.schedule, *plan.safer)
        choice = None
        if job.rank == 0:
            learning = learning_of([typed.of_builtins(each, Report) for each in given], job.world)
            choice, refused = self._choice(schedules, learning)
            for why in refused:
                self._note("refused", plan, iteration, epoch, why)
        chosen = job.store.gather("guard/choice", job.rank, job.world, choice, job.settings.timeout_s)[0]
        return Schedule() if chosen == len(schedules) else schedules[chosen]

    def _choice(self, schedules: Sequence[Schedule], learning: Learning | None) -> tuple[int, list[str]]:
        """Return the index of the schedule, or their number if none passes; and the reasons why those before it are refused."""
        refused: list[str] = []
        for at, schedule in enumerate(schedules):
            if any(risk_of(schedule) >= ended for ended in self._ended):
                continue
            found = judged(schedule, learning, guard=self._job.settings.guard)
            if accepted(found):
                return at, refused
            failed = max((check for check in found if check.passed is False), key=used)
            which = "its schedule" if at == 0 else f"its safer schedule {at}"
            hint = (
                ""
                if failed.value is not None
                else "; hk.curvature(model, loss) before the loop makes it known"
            )
            refused.append(f"the guard does not let {which} pass: {described(failed)}{hint}")
        return len(schedules), refused

    def _note(self, what: What, plan: Plan, iteration: int, epoch: int, why: str) -> None:
        if self._job.rank == 0:
            self._notes(what, plan.label, iteration, epoch, why)


def measuring(plan: Plan) -> Schedule:
    """Return synchronous iterations of which the first send nothing before backward has ended, so that gradients can be copied."""
    turns = [
        [
            Turn(
                first=at,
                last=at,
                sent=Begun(iteration=at, point="backward_end", place=bucket) if at < GAUGED else Ready(),
                due=Due(iteration=at),
            )
            for at in range(WINDOW_MIN)
        ]
        for bucket in range(len(plan.buckets))
    ]
    return Schedule(
        period=WINDOW_MIN, overlap=plan.schedule.overlap, together=False, turns=tuple(map(tuple, turns))
    )
