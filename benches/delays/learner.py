"""Merged and late updates in one process: the arithmetic of sessions with a schedule, without ranks and without a network.

A worker's gradient is for the mean of its batch, and all batches have one size, so the workers' mean is the gradient of the whole
batch. `training/guard/oversight.py` is the sentinel and the guard, as in a job. Iterations are assigned to turns here, without
slots and launches. `tests/torch/test_learner.py` compares the parameters with those of real ranks.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch

from hocket.artefacts.learning import Learning
from hocket.artefacts.plan import AllReduce, Bucket, Part, Plan, Schedule
from hocket.job.rendezvous import Job
from hocket.planning.schedules import turns
from hocket.planning.walk import rate_factor
from hocket.settings import Settings
from hocket.torch.hyperparameters import learning_of
from hocket.torch.optimizers import Rates
from hocket.training.guard.gauge import Gauge
from hocket.training.guard.oversight import Oversight
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


@dataclass
class Turn:
    """Sums of a bucket's gradients over some iterations. `last`, `due`: when it ended, and when it is applied."""

    iterations: int = 0
    sums: list[torch.Tensor | None] = field(default_factory=list)
    last: int = -1
    due: int = -1

    def add(self, made: Sequence[torch.Tensor | None]) -> None:
        """Add the gradients of an iteration."""
        self.iterations += 1
        before = self.sums or [None] * len(made)
        self.sums = [
            own if new is None else new if own is None else own + new
            for own, new in zip(before, made, strict=True)
        ]


class Learner:
    """A model that learns by a plan's schedules. `retreated`: the iteration of the first alarm, or None."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        buckets: Sequence[Sequence[torch.nn.Parameter]],
        plan: Plan,
        settings: Settings | None = None,
    ) -> None:
        """Begin. `buckets`: parameters of each of the plan's buckets, together all of the model's."""
        settings = settings or Settings()
        alone = Alone(optimizer, settings)
        self.optimizer, self._buckets, self._plan = optimizer, buckets, plan
        self._rates = Rates(optimizer)
        self.gauge = Gauge()
        self._sentinel: Oversight | None = None
        if settings.sentinel and not is_synchronous(plan.schedule):
            self._sentinel = Oversight(cast(Framework, alone), cast(Job, alone), self.gauge, None)
        self.iteration = 0
        self.retreated: int | None = None
        self._voted = False
        self._begin()

    def learn(self, loss: torch.Tensor) -> None:
        """Run one iteration: backward, and the optimizer's step if something is due."""
        for each in self._parameters():
            each.grad = None
        loss.backward()
        for bucket, turn in zip(self._buckets, self._open, strict=True):
            turn.add([each.grad for each in bucket])
        self._count()
        self._voted = self._sentinel is not None and self._sentinel.alarm is not None
        due = self._ended()
        if any(turn.due == turn.last for turn in due.values()):
            self._count()
        self._apply(due)
        self._held = self._ends
        if self._held and not due and not any(self._waiting):
            self.flush()
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
        while any(self._waiting):
            self._apply({at: waiting.popleft() for at, waiting in enumerate(self._waiting) if waiting})
        self._begin()

    def _begin(self) -> None:
        schedule: Schedule = self._plan.schedule
        if self._sentinel is not None:
            schedule = self._sentinel.schedule(self._plan, self.iteration, 0)
        self._schedule, self._made = schedule, 0
        self._open = [Turn() for _ in self._buckets]
        self._waiting: list[deque[Turn]] = [deque() for _ in self._buckets]
        self._norms2: dict[int, float] = {}
        self._held = self._retreats = self._counts = False
        self._ends: bool = False

    def _ended(self) -> dict[int, Turn]:
        """End an iteration; return the turns that are due now, by bucket."""
        due, made = {}, self._made
        for at, waiting in enumerate(self._waiting):
            turn = self._open[at]
            ends = turns(self._schedule, at).turns
            late = next((due - last for _, last, due in ends if last == made % self._schedule.period), None)
            if late is not None and not self._held:
                turn.last, turn.due = made, made + late
                waiting.append(turn)
                self._open[at] = Turn()
            if waiting and waiting[0].due == made:
                due[at] = waiting.popleft()
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

    def _apply(self, due: Mapping[int, Turn]) -> None:
        for each in self._parameters():
            each.grad = None
        if not due:
            return
        factors: dict[int, float] = {}
        for at, turn in due.items():
            squares = 0.0
            for each, total in zip(self._buckets[at], turn.sums, strict=True):
                if total is None:
                    continue
                each.grad = total / turn.iterations
                squares += float(each.grad.square().sum())
                factors[id(each)] = rate_factor(self._schedule.rate, turn.iterations)
            self._norms2[at] = squares
        self._watch()
        self._rates.of_next_step(factors)
        self.optimizer.step()

    def _watch(self) -> None:
        sentinel = self._sentinel
        if sentinel is None or not sentinel.looks or self._retreats:
            return
        learned = sentinel.learns
        if len(self._norms2) == len(self._buckets):
            sentinel.see(math.sqrt(sum(self._norms2.values())))
        self._ends = self._ends or (learned and not sentinel.learns)

    def _parameters(self) -> list[torch.nn.Parameter]:
        return [each for bucket in self._buckets for each in bucket]


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
