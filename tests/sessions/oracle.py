"""A trainer of one process, with NumPy in double precision: what the parameters of all ranks must be after each step.

It knows plans by the turns of their gradients alone. A step is the optimizer's with the mean over the ranks and iterations of the
turns that are due; a gradient that no rank has made in a turn is none, else a missing one counts as zero.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hocket.artefacts.plan import Plan, Schedule
from hocket.artefacts.plan import Turn as Planned
from hocket.planning.walk import rate_factor
from tests.sessions import model
from tests.sessions.plans import EVERY, plan_of_scenario
from tests.sessions.scenarios import LEAVER, Iteration, Scenario, course
from tests.training.adapters import MOMENTUM, RATE
from tests.training.tape import Momentum, Network, Tape

Gradients = dict[str, np.ndarray | None]
Made = Sequence[Gradients]
"""Gradients of an iteration, by rank."""


class Turn(NamedTuple):
    """Gradients of iterations that are applied together, with the step of iteration `due`."""

    due: int
    iterations: list[Made]


class Bucket:
    """Parameters whose gradients have the same turns."""

    def __init__(self, names: Sequence[str], turns: Sequence[Planned], period: int) -> None:
        self.names, self._period = names, period
        self._due = {turn.last: (turn.due.iteration - turn.last, turn.due.at) for turn in turns} or {
            0: (0, "end")
        }
        self.open: list[Made] = []
        self.waiting: deque[Turn] = deque()

    def ended(self, iteration: int, made: Made, *, held: bool) -> list[Made] | None:
        """Return what is due with the step of an iteration. `held`: no turn ends."""
        self.open.append(made)
        if iteration % self._period in self._due and not held:
            late, _ = self._due[iteration % self._period]
            self.waiting.append(Turn(iteration + late, self.open))
            self.open = []
        if self.waiting and self.waiting[0].due == iteration:
            return self.waiting.popleft().iterations
        return None

    def at_once(self, iteration: int) -> bool:
        """Return whether a turn is due at the end of the backward with which it ends."""
        return self._due.get(iteration % self._period) == (0, "end")

    def left(self) -> list[list[Made]]:
        """Take all that is not applied, the oldest first."""
        left = [turn.iterations for turn in self.waiting] + ([self.open] if self.open else [])
        self.open, self.waiting = [], deque()
        return left


def buckets_of(plan: Plan | None, names: Sequence[str]) -> tuple[list[Bucket], Schedule]:
    """Return the buckets of a plan: those that share parameters have the same turns."""
    schedule = Schedule() if plan is None else plan.schedule
    if plan is None or not schedule.turns:
        return [Bucket(names, (), 1)], schedule
    first: dict[str, int] = {}
    for at, bucket in enumerate(plan.buckets):
        for name in bucket.variables:
            first.setdefault(name, at)
    return [
        Bucket([name for name in first if first[name] == at], schedule.turns[at], schedule.period)
        for at in dict.fromkeys(first.values())
    ], schedule


class Trainer:
    """A model, its optimizer, and turns of gradients."""

    def __init__(self, plan: Plan | None) -> None:
        self.network = Network(model.initial(0))
        self._optimizer = Momentum(self.network.parameters.values(), RATE, MOMENTUM)
        self.kept: set[str] = set()
        """Parameters whose gradients are zeros that the script has left."""
        self._goes_by(plan)

    def _goes_by(self, plan: Plan | None) -> None:
        self._buckets, self._schedule = buckets_of(plan, list(self.network.parameters))
        self._number = 0
        self.held = self._was_due = False

    def gradients(self, scenario: Scenario, rank: int, number: int, backwards: int) -> Gradients:
        """Sums over the backwards of a rank's iteration."""
        self._optimizer.zero_grad()
        for name in self.kept:
            own = self.network.parameters[name]
            own.grad = np.zeros_like(own.value)
        for backward in range(backwards):
            tape = Tape()
            x, target = model.batch(rank, number, backward)
            uses = model.spare(scenario, rank, number, backward)
            tape.backward(self.network.loss(tape, x, target, spare=uses))
        return {name: each.grad for name, each in self.network.parameters.items()}

    def step(self, made: Made, ranks: Sequence[int]) -> None:
        """End an iteration, and apply what is due: means over these ranks."""
        due = [(each, each.ended(self._number, made, held=self.held)) for each in self._buckets]
        self._number += 1
        shown = [(each, turn) for each, turn in due if turn is not None]
        self._was_due = bool(shown)
        self._apply(shown, ranks)

    def zero(self, *, to_none: bool) -> None:
        """Zero gradients as a script does."""
        self.kept = (
            set()
            if to_none
            else {name for name, each in self.network.parameters.items() if each.grad is not None}
        )

    def idle(self) -> None:
        """Step once more: zeros that were left move momentum."""
        for name, own in self.network.parameters.items():
            own.grad = np.zeros_like(own.value) if name in self.kept else None
        self._optimizer.step()

    def flush(self, ranks: Sequence[int], plan: Plan | None = None) -> None:
        """Apply all that is left, a step for each turn. `plan`: goes on with it."""
        left = [(each, each.left()) for each in self._buckets]
        for at in range(max(len(turns) for _, turns in left)):
            self._apply([(each, turns[at]) for each, turns in left if at < len(turns)], ranks)
            self.kept = set()
        self.held = False
        if plan is not None:
            self._goes_by(plan)

    def at_once(self) -> bool:
        """Return whether something was due at the end of the backward with which its turn ended, in the last iteration."""
        return any(each.at_once(self._number - 1) for each in self._buckets)

    @property
    def drained(self) -> bool:
        """True if no turn is in flight."""
        return not any(each.waiting for each in self._buckets)

    @property
    def clean(self) -> bool:
        """True if all was applied that was made."""
        return self.drained and not any(each.open for each in self._buckets)

    def drain(self, ranks: Sequence[int], plan: Plan | None = None) -> bool:
        """Apply open turns, if nothing else was due in the last step; return whether that was so."""
        if self._was_due or not self.drained:
            return False
        self.flush(ranks, plan)
        return True

    def values(self) -> np.ndarray:
        """All parameters, one after the other."""
        return np.concatenate([each.value.ravel() for each in self.network.parameters.values()])

    def set_values(self, values: np.ndarray) -> None:
        """Set all parameters."""
        start = 0
        for each in self.network.parameters.values():
            each.value[...] = values[start : start + each.value.size].reshape(each.value.shape)
            start += each.value.size

    def _apply(self, due: Sequence[tuple[Bucket, list[Made]]], ranks: Sequence[int]) -> None:
        self._optimizer.zero_grad()
        factors: dict[str, float] = {}
        for bucket, turn in due:
            for name in bucket.names:
                made = [own[rank][name] for own in turn for rank in ranks]
                found = [each for each in made if each is not None]
                self.network.parameters[name].grad = sum(found) / len(made) if found else None  # type: ignore[assignment]
                factors[name] = rate_factor(self._schedule.rate, len(turn))
        self._optimizer.factors = factors
        self._optimizer.step()


def expected(scenario: Scenario, members: Sequence[Sequence[int]]) -> list[np.ndarray]:
    """Return what the parameters must be: after each iteration, and when all is applied. `members`: the ranks of each."""
    if scenario.plan == "local":
        raise ValueError("each rank has its own: `alone`")
    initial = model.gradients()
    trainer = Trainer(plan_of_scenario(scenario, initial))
    other = None
    """The plan that follows, once all ranks know it."""
    known, leaves = -1, False
    found = []
    for number, (at, ranks) in enumerate(zip(course(scenario), members, strict=False)):
        if at.before == "epoch":
            other, known = plan_of_scenario(scenario, initial, epoch=1), number
        everyone = range(scenario.world)
        made = [trainer.gradients(scenario, rank, number, at.backwards) for rank in everyone]
        trainer.step(made, ranks)
        if scenario.turns and other is not None and (number > known or trainer.at_once()):
            trainer.held = True
            if trainer.drain(ranks, other):
                other = None
        if scenario.turns and scenario.commit == "barrier":
            if trainer.held:
                trainer.drain(ranks)
            elif leaves and LEAVER in ranks and not trainer.clean:
                trainer.held = True
        _after(trainer, at)
        if at.after == "flush":
            trainer.flush(ranks, other)
            other = None
        if at.after == "resume":
            trainer.kept = set()
        leaves = leaves or at.after == "leave"
        found.append(trainer.values())
    trainer.flush(members[-1])
    return [*found, trainer.values()]


def _after(trainer: Trainer, at: Iteration) -> None:
    trainer.zero(to_none=not at.zeros)
    if at.idle:
        trainer.idle()


def alone(scenario: Scenario) -> list[list[np.ndarray]]:
    """Return the same by rank for ranks that step alone; every so many steps, the mean of what they moved takes an outer Nesterov
    step from the anchor."""
    ranks = [Trainer(None) for _ in range(scenario.world)]
    anchor = ranks[0].values()
    moved = np.zeros_like(anchor)
    found: list[list[np.ndarray]] = [[] for _ in ranks]
    steps = 0

    def exchange() -> None:
        nonlocal anchor, moved
        delta = anchor - sum(own.values() for own in ranks) / len(ranks)
        moved = 0.9 * moved + delta
        anchor = anchor - 0.7 * (delta + 0.9 * moved)
        for own in ranks:
            own.set_values(anchor)

    for number, at in enumerate(course(scenario)):
        for rank, own in enumerate(ranks):
            own.step([own.gradients(scenario, rank, number, at.backwards)], [0])
        for _ in range(1 + at.idle):
            steps += 1
            if steps % EVERY == 0:
                exchange()
        if at.after == "flush" and steps % EVERY:
            exchange()
        for rank, own in enumerate(ranks):
            found[rank].append(own.values())
    if steps % EVERY:
        exchange()
    return [[*own, anchor] for own in found]
