"""Learning with steps alone in one process: a model for each rank, with the arithmetic of sessions (`hocket.torch.local`).

`tests/torch/test_learner.py` compares it with a reference that has none of Hocket's code.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import torch

from benches.delays.working import Copy
from hocket.artefacts.local import every, in_step
from hocket.artefacts.plan import Schedule
from hocket.errors import UsageError
from hocket.torch.local import Local
from hocket.training.guard.drift import LOSSES_MIN, Judge, Losses, Report
from hocket.training.memory.anchor import Arrival, Pending
from hocket.training.memory.buckets import LoadedBucket


class Progress(NamedTuple):
    """Part of a `LoadedBucket`: how far one copy came in a turn, by name."""

    names: tuple[str, ...]
    views: list[torch.Tensor]


@dataclass
class Turn:
    """Progress of all copies in a bucket, over so many iterations, which is `due` with one."""

    iterations: int
    due: int
    own: list[Progress]


@dataclass
class Bucket:
    """Turns of a bucket: iterations of the open one, and those under way."""

    open: int = 0
    under_way: deque[Turn] = field(default_factory=deque)


class Guard:
    """Guard of copies, as a job has it.

    Args:
        safer: schedules to which it retreats, before an exchange after each step, and with which it begins where steps alone grow.
        logs: it knows the copies' losses.
        acts: it retreats; else, it only notes what copies report.

    Attributes:
        retreats: iterations after which it chose another schedule.
        exchanges: steps alone and reports of each exchange, by copy.
    """

    def __init__(self, safer: Sequence[Schedule], *, logs: bool, acts: bool = True) -> None:
        self.retreats: list[int] = []
        self.exchanges: list[tuple[int, dict[int, Report]]] = []
        self._safer, self._logs, self._acts = safer, logs, acts
        self._judge = Judge()
        self._losses: list[Losses] = []
        self._paces: list[float] = []
        self._iteration = 0
        self._last: list[torch.Tensor] = []
        self._longer: list[Schedule] = []

    def begins(self, schedule: Schedule) -> Schedule:
        """Return the schedule with which copies begin, if they are to train by this one."""
        known = [each for each in (schedule, *self._safer) if every(each) > LOSSES_MIN]
        if self._acts and schedule.outer is not None and schedule.outer.grows and known:
            *self._longer, schedule = known
        return schedule

    def stepped(self, losses: Sequence[float], anchors: Sequence[Local]) -> None:
        """Note an iteration."""
        self._iteration += 1
        self._losses = self._losses or [Losses() for _ in losses]
        for own, loss in zip(self._losses, losses if self._logs else (), strict=self._logs):
            own.see(loss)
        self._paces = self._paces or [each.distance() for each in anchors]

    def judged(
        self, turns: Sequence[Turn], schedule: Schedule, copies: Sequence[Copy]
    ) -> tuple[Schedule, bool] | None:
        """Return the schedule that follows, and whether the exchange is not to be taken; None: training goes on."""
        paces, self._paces = self._paces, []
        reports = {}
        for number, copy in enumerate(copies):
            own = [each for turn in turns for each in turn.own[number].views]
            along, step = _along(own, self._last)
            rate = copy.optimizer.param_groups[0]["lr"]
            losses = self._losses[number].report(turns[0].iterations)
            reports[number] = Report(_length(own), along, step, paces[number], rate, *losses)
        each_own = [[view for turn in turns for view in turn.own[number].views] for number in reports]
        self._last = [sum(each[1:], each[0]) / len(each) for each in zip(*each_own, strict=True)]
        self.exchanges.append((turns[0].iterations, reports))
        if every(schedule) == 1 or not self._acts:
            return None
        verdict = self._judge.see(0, turns[0].iterations, reports, tries=bool(self._longer))
        if verdict is None and not (self._longer and self._judge.keeps(0)):
            return None
        self._judge.again()
        self._last = []
        if verdict is None:
            return self._longer.pop(), False
        self._longer = []
        self.retreats.append(self._iteration)
        shorter = [each for each in self._safer if every(each) <= verdict.share * every(schedule)]
        return (shorter[0] if shorter else in_step(schedule)), verdict.diverges


class Apart:
    """Copies of a model that step alone by a schedule, one for each rank. `exchanges`: their number so far."""

    def __init__(self, copies: Sequence[Copy], schedule: Schedule, guard: Guard | None = None) -> None:
        """Begin. `guard`: it judges exchanges. UsageError: the schedule is another one, or of exchanges that the guard of a job
        judges later."""
        if schedule.outer is None:
            raise UsageError("apart: the schedule has no steps alone")
        if guard is not None and (schedule.delay_max or not schedule.together):
            raise UsageError("apart: a guard is for exchanges of all parameters that copies wait for")
        self.copies, self._guard = copies, guard
        self._schedule = schedule if guard is None else guard.begins(schedule)
        self._anchors = [
            Local(each.model, each.optimizer, dict(each.model.named_parameters())) for each in copies
        ]
        for anchor in self._anchors:
            anchor.begin(schedule.outer)
        self._buckets = [Bucket() for _ in copies[0].buckets]
        self._made = self.exchanges = 0

    def learn(self, *losses: torch.Tensor) -> None:
        """Run one iteration: backward and step of each copy, and an exchange if one is due."""
        for copy, loss in zip(self.copies, losses, strict=True):
            copy.optimizer.zero_grad()
            loss.backward()
            copy.optimizer.step()
        if self._guard is not None:
            self._guard.stepped([float(each.detach()) for each in losses], self._anchors)
        for at, bucket in enumerate(self._buckets):
            bucket.open += 1
            for turn in self._schedule.turns[at]:
                if turn.last % self._schedule.period == self._made % self._schedule.period:
                    self._depart(at, turn.due.iteration - turn.last)
        self._made += 1
        if self._guard is not None and self._buckets[0].under_way:
            self._judge(self._guard)
        self._arrive()

    def load_into(self, model: torch.nn.Module) -> None:
        """Load what a job would save now: the anchor."""
        model.load_state_dict(self.copies[0].model.state_dict())

    def _judge(self, guard: Guard) -> None:
        """Judge an exchange that is about to be taken."""
        turns = [bucket.under_way[0] for bucket in self._buckets]
        instead = guard.judged(turns, self._schedule, self.copies)
        if instead is None:
            return
        self._schedule, diverges = instead
        self._made = 0
        for bucket in self._buckets:
            for turn in bucket.under_way:
                turn.due = -1
            if diverges:
                bucket.under_way.clear()
        for anchor in self._anchors if diverges else ():
            anchor.discard()

    def _depart(self, at: int, late: int) -> None:
        bucket, found = self._buckets[at], []
        for number, (copy, anchor) in enumerate(zip(self.copies, self._anchors, strict=True)):
            views = [torch.empty_like(each) for each in copy.buckets[at]]
            progress = Progress(copy.names[at], views)
            before = [(cast(LoadedBucket, turn.own[number]), 1.0) for turn in bucket.under_way]
            anchor.depart(cast(LoadedBucket, progress), before)
            found.append(progress)
        bucket.under_way.append(Turn(bucket.open, self._made + late, found))
        bucket.open = 0

    def _arrive(self) -> None:
        due = {
            at: bucket.under_way.popleft()
            for at, bucket in enumerate(self._buckets)
            if bucket.under_way and bucket.under_way[0].due < self._made
        }
        if not due:
            return
        self.exchanges += 1
        lacks = range(any(bucket.open or bucket.under_way for bucket in self._buckets))
        for number, anchor in enumerate(self._anchors):
            anchor.arrive([self._arrival(number, at, turn) for at, turn in due.items()], lacks=lacks)
        for other in self.copies[1:]:
            other.take_buffers(self.copies[0])

    def _arrival(self, number: int, at: int, turn: Turn) -> Arrival:
        bucket, own = self._buckets[at], turn.own[number]
        # As a session's programs have it: over ranks and iterations.
        count = len(turn.own) * turn.iterations
        mean = [
            sum(each[1:], each[0]) / count for each in zip(*(each.views for each in turn.own), strict=True)
        ]
        left = [each.iterations for each in bucket.under_way] + ([bucket.open] if bucket.open else [])
        loaded = cast(LoadedBucket, own)
        return Arrival(
            cast(LoadedBucket, Progress(own.names, mean)),
            loaded,
            range(turn.iterations),
            (),
            1.0,
            tuple(Pending(loaded, range(each), ()) for each in left),
        )


def _length(views: Sequence[torch.Tensor]) -> float:
    return math.sqrt(sum(float(each.double().square().sum()) for each in views))


def _along(own: Sequence[torch.Tensor], last: Sequence[torch.Tensor]) -> tuple[float, float]:
    """Return the component along the last step, and that step's length; zeros if there is none."""
    length = _length(last)
    if not length > 0:
        return 0.0, 0.0
    product = sum(float((a.double() * b.double()).sum()) for a, b in zip(own, last, strict=True))
    return product / length, length
