"""Iterations of ranks that step alone between exchanges: what leaves with one is how far this rank came since it sent last.

An iteration ends with the optimizer's step, and turns are of such iterations. Most exchange nothing, and cost the step nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from hocket._native import LiveTurn
from hocket.artefacts.plan import Outer
from hocket.errors import UsageError
from hocket.training.guard.drift import NOTHING, Report
from hocket.training.guard.notes import log
from hocket.training.guard.weighing import SavedWeighing, weighing_of
from hocket.training.memory.anchor import Arrival
from hocket.training.memory.device import made
from hocket.training.memory.framework import Framework
from hocket.training.step.pace import Pace

if TYPE_CHECKING:
    from hocket.training.step.updates import Updates


LATE_AGAIN = 10
"""Number of exchanges in a row after which a rank that comes too late to all of them is named again."""


class Alone:
    """Departures of one session's turns. `outer` steps the anchor; `departed`: arenas whose turn ends with the last iteration that
    exchanged something, by the schedule; `weighing`: weights of ranks, None where all count alike; `pace`: this rank's, None where
    all make equally many steps; `late`: what left last did so without this rank, which had not come in time."""

    def __init__(
        self,
        framework: Framework,
        updates: Updates,
        outer: Outer,
        ranks: Callable[[], Sequence[int]],
    ) -> None:
        """Begin with what this rank has before its next step. `ranks`: those that are in the last sums."""
        self._ranks = ranks
        self._framework, self._updates, self.outer = framework, updates, outer
        self.departed: list[int] = []
        self.weighing = weighing_of(outer, lambda: framework.workload(gradients=False))
        self.pace = Pace(in_time=outer.grace_s is not None, sites=outer.inside) if outer.paced else None
        self.late = False
        self._late: Counter[int] = Counter()
        """By rank, the number of exchanges in a row to which it came too late."""
        self._ahead: set[tuple[int, int]] = set()
        """Turns, by arena and slot, since which this rank has stepped, although no iteration has ended since."""
        self._counted: tuple[object, dict[int, int]] = None, {}
        """Counter of launches, and how often each was launched, by number, when `sent` was asked last."""
        self.begin()

    def begin(self) -> None:
        """Begin anew: the script has stepped together with the other ranks since."""
        self._framework.local.begin(self.outer)
        if self.pace is not None:
            self.pace.resumes()

    def begin_turns(self, period: int) -> None:
        """Begin the turns of a schedule of this period: all that was made is in the anchor."""
        if self.weighing is not None:
            self.weighing.begin(range(len(self._updates.buckets)), period)
        if self.pace is not None:
            self.pace.begin(period)

    def stepped(self) -> int:
        """Note a step; return the number of iterations that end with it."""
        if self.weighing is not None:
            self.weighing.stepped()
        return 1 if self.pace is None else self.pace.stepped()

    def end(self) -> None:
        """End: ranks step together from now on."""
        if self.weighing is not None:
            self.weighing.end()
        self._framework.local.end()

    def report(self, drift: Report | None) -> Report | None:
        """Return a report of an iteration that exchanges something, with this rank's weight and time of a step. `drift`: what is
        reported of its drift."""
        if self.weighing is None and self.pace is None:
            return drift
        weight = 0.0 if self.weighing is None else self.weighing.leaving()
        step_s = 0.0 if self.pace is None else self.pace.step_s()
        return (drift or NOTHING)._replace(weight=weight, step_s=step_s, late=float(self.late))

    def counted(self, reports: Mapping[int, Report], own: int) -> None:
        """Take the reports of all ranks; `own`: this rank among them."""
        if self.weighing is not None:
            self.weighing.counted(reports)
        if self.pace is not None:
            self.pace.counted(reports, own)
        for rank, report in reports.items():
            times = self._late[rank] = self._late[rank] + 1 if report.late > 0 else 0
            if times in (1, LATE_AGAIN) and own == min(reports):
                _warn(rank, times, paced=self.outer.paced)

    @property
    def period_ends(self) -> bool:
        """True if an iteration has just ended a period of the schedule, or all that was made is in the anchor."""
        return self._updates.settled or self._updates.readiness.made % self._updates.schedule.period == 0

    def check_even(self, call: str, *, uneven: bool = False) -> None:
        """Raise UsageError if ranks may have made different shares of a period, of which one mean cannot be. `uneven`: they may
        although their pace is one."""
        if (self.pace is not None or uneven) and not self.period_ends:
            made, period = self._updates.readiness.made, self._updates.schedule.period
            raise UsageError(
                f"{call}: ranks step at their own pace, and this one is in step {made % period} of {period} between exchanges\n"
                "hint: train until hk.steps(model) is a multiple of `every`"
            )

    @property
    def exchanges(self) -> bool:
        """True if the iteration that ends next brings or sends something."""
        readiness = self._updates.readiness
        due = any(turn.due == readiness.made for own in readiness.turns for turn in own)
        return due or readiness.held or bool(self._ending)

    def ends(self) -> None:
        """Write how far this rank came into turns that end with this iteration."""
        self.departed = self._ending
        self._depart(self.departed, told=False)

    def sent(self) -> list[int]:
        """Return the programs that were launched since the last call, in the order of their buckets: between two iterations, the
        same ones on all ranks."""
        readiness, (counted, before), found = self._updates.readiness, self._counted, []
        now = {each.number: readiness.progress(each.number)[1] for each in self._updates.launches}
        for each in self._updates.launches:
            since = before[each.number] if counted is readiness else 0
            found += [each.program] * (now[each.number] - since)
        self._counted = readiness, now
        return found

    def flushes(self) -> None:
        """Write it into all turns that have an iteration."""
        turns = self._updates.readiness.turns
        self._depart((arena for arena, (*_, opened) in enumerate(turns) if opened.iterations), told=True)

    @property
    def _ending(self) -> list[int]:
        """Arenas whose open turn ends with the next iteration, by the schedule."""
        updates = self._updates
        if updates.readiness.held:
            return []
        at, turns = updates.readiness.made % updates.schedule.period, updates.schedule.turns
        return [
            arena
            for arena, bucket in enumerate(updates.buckets)
            if any(turn.last % updates.schedule.period == at for turn in turns[bucket.launches[0].number])
        ]

    def _depart(self, arenas: Iterable[int], *, told: bool) -> None:
        turns = {arena: self._updates.readiness.turns[arena] for arena in arenas}
        weighing, weight = self.weighing, 1.0
        if weighing is not None and turns:
            weight = weighing.depart([opened for *_, opened in turns.values()], told=told)
        for arena, (*under_way, opened) in turns.items():
            slots = self._updates.buckets[arena].slots
            sent = [(slots[turn.slot], self.sent_by(turn)) for turn in under_way]
            self._framework.local.depart(slots[opened.slot], sent, weight)
            made(self._framework.device, [slots[opened.slot].memory])
            if self.late:
                self._ahead.add((arena, opened.slot))

    def factor(self, turn: LiveTurn) -> float:
        """Return the factor that makes the mean of a turn that is due the weighted one."""
        return 1.0 if self.weighing is None else self.weighing.factor(turn, self._ranks())

    def weighed(self, arrivals: Sequence[Arrival], due: Sequence[LiveTurn]) -> list[Arrival]:
        """Return what the anchor takes of these turns, by the weights of their ranks."""
        found = [
            replace(
                each,
                factor=self.factor(turn),
                weight=self.sent_by(turn),
                ahead=(turn.arena, turn.slot) in self._ahead,
            )
            for each, turn in zip(arrivals, due, strict=True)
        ]
        self._ahead.difference_update((turn.arena, turn.slot) for turn in due)
        if self.weighing is not None:
            self.weighing.arrived(due)
        return found

    def saved(self) -> SavedWeighing | None:
        return None if self.weighing is None else self.weighing.saved()

    def restore(self, saved: SavedWeighing | None) -> None:
        if self.weighing is not None and saved is not None:
            self.weighing.restore(saved)

    def sent_by(self, turn: LiveTurn) -> float:
        """Return the factor by which this rank's progress in a turn that has left was multiplied."""
        return 1.0 if self.weighing is None else self.weighing.own(turn)


def _warn(rank: int, times: int, *, paced: bool) -> None:
    if times == 1:
        log.warning("rank %d came too late to an exchange, which has what it had stepped by then", rank)
    else:
        hint = "" if paced else "; with paced=True it would make fewer steps, and come in time"
        log.warning("rank %d came too late to %d exchanges in a row%s", rank, times, hint)
