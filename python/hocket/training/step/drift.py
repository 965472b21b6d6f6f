"""Drift of ranks that step alone: each reports how far it came when its part of an exchange leaves, and all judge alike when the
votes are counted.

A report travels with the votes of the iteration in which its turn ends, so an exchange that waits is judged before the anchor takes
it. A schedule that fails gives way to a shorter one. Where training diverges, ranks go on from the anchor as it is, exchange after
each step, and what they had stepped since is lost.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from hocket._native import LiveTurn
from hocket.artefacts.exchange import Exchange, append_exchange
from hocket.artefacts.local import every, in_step
from hocket.artefacts.plan import Plan, Schedule
from hocket.job.rendezvous import Job
from hocket.job.trace_writes import TraceWrites
from hocket.planning.sites import sites_of
from hocket.training.guard.drift import (
    LOSSES_MIN,
    Departure,
    Judge,
    Losses,
    Report,
    SavedDrift,
    Verdict,
    agreement,
)
from hocket.training.guard.notes import Notes, log
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.device import read
from hocket.training.memory.framework import Framework
from hocket.training.memory.values import numbers, squared_norm
from hocket.training.step.updates import Updates

Record = Callable[[str, float], None]
"""Function that records a statistic of this rank, for a policy."""


class Drift:
    """Drift of one session's ranks.

    Attributes:
        report: report of the turn that ended with the last iteration; None: none did.
        discards: training diverges, and no exchange is taken until another schedule begins.
        most: largest number of steps that ranks may still step alone; None: as many as the plan says.
        grown: number of steps alone that ranks have come to, where these grow; 0: they have not begun; None: as many as they may.
    """

    def __init__(
        self, framework: Framework, updates: Updates, job: Job, trace: Path | None, record: Record
    ) -> None:
        """Begin. `trace`: directory of the model's trace, if it is written; `record`: for statistics."""
        self._framework, self._updates, self._record = framework, updates, record
        self._settings, self._trace = job.settings, trace if job.rank == 0 else None
        self._notes, self._writes = Notes(self._trace), TraceWrites("exchanges")
        self._judge, self._losses = Judge(), Losses()
        self._warned, self._pace = False, 0.0
        self.report: Report | None = None
        self.discards = False
        self.most: int | None = None
        self.grown: int | None = 0
        self._departures: list[Departure] = []
        self._rates: dict[int, float] = {}
        """By first arena of a fragment, the learning rate when it left last."""
        self._slots: dict[int, int] = {}
        """By arena, the slot with the mean that arrived last."""
        self._norms2: dict[int, float] = {}
        """By arena, the squared length of a mean that is due now."""
        self._lengths2: dict[int, float] = {}
        """By arena, that of the mean that arrived last."""

    def logged(self, loss: float) -> None:
        self._losses.see(loss)

    def schedule(self, plan: Plan) -> Schedule:
        """Return the schedule of iterations from now on, in which all that was made is applied."""
        if self.discards:
            self._framework.local.discard()
        self._judge.again(sites_of(plan))
        self.report, self.discards, self._pace = None, False, 0.0
        self._departures.clear()
        self._slots, self._rates = {}, {}
        schedules = (plan.schedule, *plan.safer)
        if self.grown == 0:
            self.grown = self._fewest(schedules)
        most = min(each for each in (self.most, self.grown, every(plan.schedule)) if each is not None)
        return next((each for each in schedules if every(each) <= most), in_step(plan.schedule))

    def grows(self, plan: Plan) -> bool:
        """Return whether ranks are to make more steps alone, as soon as exchanges keep what they gain."""
        return self.grown is not None and self.grown < every(plan.schedule)

    def _fewest(self, schedules: Sequence[Schedule]) -> int | None:
        """Return the number of steps alone with which ranks are to begin; None: as many as the plan says."""
        outer = schedules[0].outer
        judges = self._settings.sentinel and self._settings.guard != "off"
        if outer is None or not outer.grows or not judges:
            return None
        # A script may log the loss of a step after the exchange that follows, which is none of the turn's then.
        return min(
            (every(each) for each in schedules if every(each) - each.delay_max > LOSSES_MIN), default=None
        )

    def passed(self) -> None:
        """Look at the first step of a turn that began at the anchor."""
        schedule = self._updates.schedule
        begins = self._updates.readiness.made % schedule.period == 0
        at_anchor = (
            schedule.together
            and not schedule.delay_max
            and schedule.outer is not None
            and schedule.outer.mix is None
        )
        if begins and at_anchor:
            self._pace = self._framework.local.distance()

    def departed(self, arenas: Sequence[int]) -> None:
        """Look at what leaves with this iteration. Where each step is exchanged, ranks do not drift."""
        self.report = None
        if every(self._updates.schedule) == 1:
            self._losses.values.clear()
            return
        if not arenas:
            return
        opened = [self._updates.readiness.turns[at][-1] for at in arenas]
        leaving = [
            self._updates.buckets[at].slots[turn.slot] for at, turn in zip(arenas, opened, strict=True)
        ]
        read(self._framework.device, [each.memory for each in leaving])
        weight = 1.0 if self._updates.local is None else self._updates.local.sent_by(opened[0])
        scale = 1 / weight if weight > 0 else 0.0
        moved = scale * math.sqrt(sum(squared_norm(each, self._framework) for each in leaving))
        along, step = self._along(arenas, leaving)
        paced = None if self._updates.local is None else self._updates.local.pace
        pace, self._pace = self._pace * (1.0 if paced is None else paced.share), 0.0
        if self._updates.local is not None and self._updates.local.late:
            # Of a turn that left without its rank, nobody knows how many steps it has.
            pace = 0.0
        steps = opened[0].iterations + 1
        losses = self._losses.report(steps, self._updates.schedule.delay_max)
        self.report = Report(moved, scale * along, step, pace, self._rate(arenas[0]), *losses)
        self._departures.append(Departure(arenas=tuple(arenas), steps=steps))

    def counted(self, reports: Mapping[int, Report], reporter: int, plan: Plan, at: tuple[int, int]) -> bool:
        """Judge an exchange that stands by the reports of all ranks, once; return whether another schedule is to follow.
        `reporter`: this rank, as it reports; `at`: iteration and epoch."""
        uncounted = [index for index, each in enumerate(self._departures) if not each.reports]
        if not reports or not uncounted:
            return False
        left = self._departures[uncounted[0]]
        self._departures[uncounted[0]] = replace(left, reports=tuple(reports.values()))
        verdict = self._judge.see(left.arenas[0], left.steps, reports, tries=self.grows(plan))
        speaks = reporter == min(reports)
        if self.discards or not self._settings.sentinel:
            return False
        if verdict is None:
            return self._kept(left.arenas[0], plan)
        if self._settings.guard == "off":
            if speaks and not self._warned:
                log.warning("%s: %s; nothing is done about it, as HOCKET_GUARD=off", plan.label, verdict.why)
            self._warned = True
            return False
        self._retreat(verdict, plan)
        if speaks:
            self._notes("retreated", plan.label, *at, self._words(verdict))
        return True

    def given(self, turn: LiveTurn, mean: LoadedBucket, factor: float) -> None:
        """Note that the mean of a turn is there, which is the anchor's, times `factor`, before it steps."""
        if self._departures or self._slots:
            self._slots[turn.arena] = turn.slot
            self._norms2[turn.arena] = (factor * turn.iterations) ** 2 * squared_norm(mean, self._framework)

    def all_given(self, iteration: int) -> None:
        """Tell of an exchange of which all means are there, after so many iterations."""
        norms2, self._norms2 = self._norms2, {}
        self._lengths2 |= norms2
        done = [each for each in self._departures if norms2.keys() >= set(each.arenas)]
        for each in done:
            self._departures.remove(each)
            if each.reports:
                self._tell(each, math.sqrt(sum(norms2[arena] for arena in each.arenas)), iteration)

    def _tell(self, done: Departure, moved: float, iteration: int) -> None:
        """Tell of an exchange whose mean has this length."""
        away = [each.moved for each in done.reports]
        drift = math.sqrt(sum(each**2 for each in away) / len(away))
        alike = agreement(moved, drift)
        for name, value in (("drift", drift), ("agreement", alike)):
            if value is not None and math.isfinite(value):
                self._record(name, value)
        if self._trace is not None:
            logged = [each for each in done.reports if each.noise2 >= 0]
            line = Exchange(
                step=iteration,
                fragment=done.arenas[0],
                steps=done.steps,
                drift=_known(drift),
                drift_max=_known(max(away)),
                moved=_known(moved),
                agreement=None if alike is None else _known(alike),
                loss_first=_mean([each.first for each in logged]),
                loss_last=_mean([each.last for each in logged]),
                taken=not self.discards,
                late=sum(each.late > 0 for each in done.reports),
            )
            self._writes(functools.partial(append_exchange, self._trace, line))

    def saved(self) -> SavedDrift:
        return SavedDrift(
            most=self.most,
            grown=self.grown,
            discards=self.discards,
            warned=self._warned,
            pace=self._pace,
            judge=self._judge.saved(),
            losses=tuple(self._losses.values),
            begins=self._losses.begins,
            rates=tuple(self._rates.items()),
            departures=tuple(self._departures),
        )

    def restore(self, saved: SavedDrift) -> None:
        self.most, self.grown = saved.most, saved.grown
        self.discards, self._warned = saved.discards, saved.warned
        self._pace = saved.pace
        self._judge.restore(saved.judge)
        self._losses.values, self._rates = list(saved.losses), dict(saved.rates)
        self._losses.begins = saved.begins
        self._departures = list(saved.departures)

    def _retreat(self, verdict: Verdict, plan: Plan) -> None:
        self.discards, self.grown = verdict.diverges, None
        most = verdict.share * every(self._updates.schedule)
        self.most = max((every(each) for each in plan.safer if every(each) <= most), default=1)

    def _kept(self, fragment: int, plan: Plan) -> bool:
        """Let ranks make more steps alone after an exchange that stands, if they are to; return whether they do."""
        if self.grown is None or not self.grows(plan) or not self._judge.keeps(fragment):
            return False
        self.grown = min(each for each in map(every, (plan.schedule, *plan.safer)) if each > self.grown)
        log.info("%s: ranks exchange after %d steps from now on", plan.label, self.grown)
        return True

    def _words(self, verdict: Verdict) -> str:
        now = every(self._updates.schedule)
        instead = f"{self.most} steps" if self.most and self.most > 1 else "each step"
        words = f"ranks exchange after {instead} from now on, instead of {now}"
        if verdict.diverges:
            words += ", and go on from the anchor before this exchange"
        return f"{words}: {verdict.why}"

    def _rate(self, fragment: int) -> float:
        """Return the mean learning rate of a turn that ends; 0: unknown."""
        learning = self._framework.learning()
        rate = 0.0 if learning is None else learning.rate
        before = self._rates.get(fragment, rate)
        self._rates[fragment] = rate
        return (before + rate) / 2

    def _along(self, arenas: Collection[int], leaving: Sequence[LoadedBucket]) -> tuple[float, float]:
        """Return the component of what leaves along the anchor's last step, and that step's length; zeros if there is none, or
        other iterations are in it."""
        if not all(at in self._slots for at in arenas):
            return 0.0, 0.0
        product = norm2 = 0.0
        for at, own in zip(arenas, leaving, strict=True):
            mean = self._updates.means.of[at][self._slots[at]]
            last = numbers(memoryview(mean.memory), mean.dtype)
            product += float(np.dot(numbers(memoryview(own.memory), own.dtype), last))
            norm2 += float(np.dot(last, last))
        if not norm2 > 0:
            return 0.0, 0.0
        # The anchor's step has scaled that memory, or its twin on a device alone.
        return product / math.sqrt(norm2), math.sqrt(sum(self._lengths2[at] for at in arenas))


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
