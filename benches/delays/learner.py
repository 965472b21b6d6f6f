"""Merged and late updates in one process: the arithmetic of sessions with a schedule, without ranks and without a network.

A worker's gradient is for the mean of its batch, and all batches have one size, so the workers' mean is the gradient of the whole
batch, and one copy of the model does for all. Where own gradients go first, each worker has a copy (`working.py`).
`training/guard/oversight.py` is the sentinel and the guard, as in a job. Iterations are assigned to turns here, without
slots and launches. `tests/torch/test_learner.py` compares the parameters with those of real ranks.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch

from benches.delays.working import Copy, Gradients, Turn
from hocket.artefacts.learning import Learning
from hocket.artefacts.plan import AllReduce, Bucket, Part, Plan, Schedule
from hocket.job.rendezvous import Job
from hocket.planning.schedules import turns
from hocket.planning.walk import rate_factor
from hocket.settings import Settings
from hocket.torch.hyperparameters import learning_of
from hocket.training.guard.gauge import Gauge
from hocket.training.guard.oversight import Oversight
from hocket.training.memory.anchor import Arrival
from hocket.training.memory.framework import Framework
from hocket.training.memory.turns import is_synchronous


class Alone:
    """A job of one process that stands for all ranks, and the framework of its optimizer."""

    rank, world = 0, 1

    def __init__(self, optimizer: torch.optim.Optimizer, settings: Settings) -> None:
        """Begin; there are no other ranks to wait for."""
        self.settings, self._optimizer = settings, optimizer
        self.store: Any = self

    def gather(self, _name: str, _rank: int, _world: int, value: Any, _timeout_s: float) -> list[Any]:
        return [value]

    def learning(self) -> Learning | None:
        """See `Framework.learning`."""
        return learning_of(self._optimizer)


class Learner:
    """Copies of a model that learn by a plan's schedules. `retreated`: the iteration of the first alarm, or None."""

    _open: list[Turn]
    """By bucket, the turn that gradients add to; none while all are applied."""

    def __init__(
        self,
        copies: Sequence[Copy],
        plan: Plan,
        settings: Settings | None = None,
        *,
        each: bool = False,
    ) -> None:
        """Begin. `copies`: a single one for the gradients of all ranks, or one for each rank, where own gradients go first.
        `each`: the optimizer steps with a mean as often as it has iterations, at parts of the rate."""
        settings = settings or Settings()
        alone = Alone(copies[0].optimizer, settings)
        self.copies, self._plan, self._each = copies, plan, each
        self._arenas = range(len(copies[0].buckets))
        self.gauge = Gauge()
        self._sentinel: Oversight | None = None
        if settings.sentinel and not is_synchronous(plan.schedule):
            self._sentinel = Oversight(cast(Framework, alone), cast(Job, alone), self.gauge, None)
        self.iteration = 0
        self.retreated: int | None = None
        self._voted = False
        self._begin()

    def learn(self, *losses: torch.Tensor) -> None:
        """Run one iteration: backward from the loss of each copy, and the optimizer's step if something is due."""
        made = [copy.made(loss, self._open) for copy, loss in zip(self.copies, losses, strict=True)]
        for turn in self._open:
            turn.add([each[turn.arena] for each in made])
        self._count()
        self._voted = self._sentinel is not None and self._sentinel.alarm is not None
        due = self._ended()
        if any(turn.due == turn.last for turn in due):
            self._count()
        means = self._means(due)
        if self.copies[0].own_first:
            for number, copy in enumerate(self.copies):
                copy.go_on(self._made - 1, self._arrivals(number, due, means))
        else:
            self._step(due, means)
        self._held = self._ends
        if self._held and not due and not any(self._waiting):
            self.flush()
        for other in self.copies[1:]:
            other.take_buffers(self.copies[0])
        self.iteration += 1

    def log(self, loss: float) -> None:
        """Log a loss, like `hk.log`."""
        self.gauge.observe(loss=loss)
        if self._sentinel is not None:
            self._sentinel.logged(loss)

    def flush(self) -> None:
        self._count()
        for waiting, turn in zip(self._waiting, self._open, strict=True):
            waiting.extend([turn] if turn.iterations else [])
        self._open = []
        rounds = []
        while any(self._waiting):
            due = [waiting.popleft() for waiting in self._waiting if waiting]
            rounds.append((due, self._means(due)))
        if self.copies[0].own_first:
            for number, copy in enumerate(self.copies):
                copy.settle([self._arrivals(number, *each) for each in rounds])
        else:
            for each in rounds:
                self._step(*each)
        self._begin()

    def load_into(self, model: torch.nn.Module) -> None:
        """Load what a job would save now: where own gradients go first, the anchor."""
        model.load_state_dict(self.copies[0].model.state_dict())

    def _begin(self) -> None:
        schedule: Schedule = self._plan.schedule
        if self._sentinel is not None:
            schedule = self._sentinel.schedule(self._plan, self.iteration, 0)
        for copy in self.copies:
            copy.begin(schedule)
        self._schedule, self._made = schedule, 0
        self._slots = itertools.count()
        self._open = [self._turn(arena) for arena in self._arenas]
        self._waiting: list[deque[Turn]] = [deque() for _ in self._arenas]
        self._norms2: dict[int, float] = {}
        self._held = self._retreats = self._counts = False
        self._ends: bool = False

    def _turn(self, arena: int) -> Turn:
        return Turn(arena, next(self._slots))

    def _ended(self) -> list[Turn]:
        """End an iteration; return the turns that are due now, at most one of each bucket."""
        due, made = [], self._made
        for at, waiting in enumerate(self._waiting):
            turn = self._open[at]
            ends = turns(self._schedule, at).turns
            late = next((due - last for _, last, due in ends if last == made % self._schedule.period), None)
            if late is not None and not self._held:
                turn.last, turn.due = made, made + late
                waiting.append(turn)
                self._open[at] = self._turn(at)
            if waiting and waiting[0].due == made:
                due.append(waiting.popleft())
        self._made += 1
        self._counts = True
        return due

    def _count(self) -> None:
        """Act on the votes of the last iteration, once."""
        if self._counts and self._voted and self._sentinel is not None and not self._retreats:
            self._voted = False
            self._retreats = self._ends = True
            self.retreated = self.retreated or self.iteration
            self._sentinel.retreat(self._schedule, self._plan, self.iteration, 0)
        self._counts = False

    def _means(self, due: Sequence[Turn]) -> dict[int, Gradients]:
        """Return the means of turns by bucket, and show them to the sentinel."""
        means = {turn.arena: turn.mean() for turn in due}
        for at, mean in means.items():
            self._norms2[at] = sum(float(each.square().sum()) for each in mean if each is not None)
        if means:
            self._watch()
        return means

    def _arrivals(self, number: int, due: Sequence[Turn], means: Mapping[int, Gradients]) -> list[Arrival]:
        """Return what the copy with this number takes."""
        rate = self._schedule.rate
        return [
            self.copies[number].arrival(number, turn, means[turn.arena], self._left(turn.arena), rate)
            for turn in due
        ]

    def _left(self, arena: int) -> list[Turn]:
        return [*self._waiting[arena], *self._open[arena : arena + 1]]

    def _step(self, due: Sequence[Turn], means: Mapping[int, Gradients]) -> None:
        """Step with means: once, or for each iteration."""
        for at in range(
            max((turn.iterations for turn in due), default=0) if self._each else min(1, len(due))
        ):
            now = [turn for turn in due if at < turn.iterations]
            factors = {
                turn.arena: rate_factor(self._schedule.rate, turn.iterations)
                / (turn.iterations if self._each else 1)
                for turn in now
            }
            for copy in self.copies:
                copy.step({turn.arena: means[turn.arena] for turn in now}, factors)

    def _watch(self) -> None:
        sentinel = self._sentinel
        if sentinel is None or not sentinel.looks or self._retreats:
            return
        learned = sentinel.learns
        if len(self._norms2) == len(self._arenas):
            sentinel.see(math.sqrt(sum(self._norms2.values())))
        self._ends = self._ends or (learned and not sentinel.learns)


def plan_of_schedules(schedule: Schedule, safer: Sequence[Schedule] = ()) -> Plan:
    """Make a plan of schedules alone, with as many buckets as they have turns for."""
    buckets = tuple(
        Bucket(
            parts=(Part(variable=f"bucket {at}"),),
            elements=1,
            dtype="f32",
            route=AllReduce(algorithm="ring"),
            order=(0, 1),
            priority=at,
        )
        for at in range(max(1, len(schedule.turns)))
    )
    return Plan(
        world=2,
        workers=(0, 1),
        buckets=buckets,
        schedule=schedule,
        safer=tuple(safer),
        promise="delayed",
        label="learner",
        reason="",
    )
