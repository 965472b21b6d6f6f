"""Copies of a model that a learner trains, as ranks of a job do: one for all ranks, or one for each.

Where own gradients go first, a copy is what one rank works with: `hocket.torch.anchor` steps it as in a job, and `OwnFirst` tells
which turns its anchor takes. Every copy has an anchor of its own, and all of these have the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import torch

from hocket._native import LiveTurn
from hocket.artefacts.plan import Schedule
from hocket.planning.walk import Rule
from hocket.torch.anchor import Anchor
from hocket.torch.optimizers import Rates
from hocket.torch.scales import Scales
from hocket.training.memory.anchor import Arrival
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.turns import own_go_first
from hocket.training.step.own_first import OwnFirst

Gradients = Sequence[torch.Tensor | None]
"""Gradients of one bucket's parameters; None: not made."""


@dataclass
class Turn:
    """Sums of a bucket's gradients over some iterations, as a `LiveTurn`.

    Attributes:
        own: sums of each copy.
        last: when it ended.
        due: when it is applied.
    """

    arena: int
    slot: int
    iterations: int = 0
    own: list[Gradients] = field(default_factory=list)
    last: int = -1
    due: int = -1

    def add(self, made: Sequence[Gradients]) -> None:
        """Add each copy's gradients of an iteration."""
        self.own = (
            [_sum(each) for each in zip(self.own, made, strict=True)] if self.iterations else list(made)
        )
        self.iterations += 1

    def mean(self) -> Gradients:
        """Return the mean over all copies and iterations."""
        count = len(self.own) * self.iterations
        return [None if each is None else each / count for each in _sum(self.own)]


class Copy:
    """A model with its optimizer, and the parameters of each bucket."""

    def __init__(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        buckets: Sequence[Sequence[torch.nn.Parameter]],
    ) -> None:
        """Begin. `buckets`: together all of the model's parameters."""
        trained = dict(model.named_parameters())
        names = {id(each): name for name, each in trained.items()}
        self.model, self.optimizer, self.buckets = model, optimizer, buckets
        self.names = [tuple(names[id(each)] for each in bucket) for bucket in buckets]
        scales = Scales(optimizer)
        self._rates = Rates(optimizer, scales)
        self._anchor = Anchor(model, optimizer, trained, scales)
        self._own: OwnFirst | None = None

    def begin(self, schedule: Schedule) -> None:
        """Step as in this schedule from now on; all gradients are applied."""
        if own_go_first(schedule):
            self._own = OwnFirst()
            self._own.begin([0] * len(self.buckets))
            self._anchor.begin()
        elif self._own is not None:
            self._own = None
            self._anchor.end()

    @property
    def own_first(self) -> bool:
        return self._own is not None

    def made(self, loss: torch.Tensor, turns: Sequence[Turn]) -> list[Gradients]:
        """Run backward; return the gradients of each bucket, which add to these turns."""
        self._forget()
        loss.backward()
        found: list[Gradients] = [[each.grad for each in bucket] for bucket in self.buckets]
        if self._own is not None:
            missing = [
                name
                for names, own in zip(self.names, found, strict=True)
                for name, each in zip(names, own, strict=True)
                if each is None
            ]
            self._own.made(missing, cast(Sequence[LiveTurn], turns))
        return found

    def step(self, means: Mapping[int, Gradients], factors: Mapping[int, float]) -> None:
        """Step buckets with their means, at their factors of the rate."""
        self._forget()
        of: dict[int, float] = {}
        for at, mean in means.items():
            for each, gradient in zip(self.buckets[at], mean, strict=True):
                each.grad = gradient
                of[id(each)] = factors[at]
        self._rates.of_next_step(of)
        self.optimizer.step()

    def go_on(self, iteration: int, arrivals: Sequence[Arrival]) -> None:
        """Step with the gradients that the last backward made; the anchor takes arrivals."""
        assert self._own is not None  # noqa: S101  # `begin` was called
        self._anchor.next_step(iteration, arrivals, lacks=self._own.lacks(iteration))
        self.optimizer.step()

    def settle(self, rounds: Sequence[Sequence[Arrival]]) -> None:
        """Take arrivals, after which the anchor lacks nothing."""
        self._anchor.settle(rounds)

    def arrival(self, number: int, turn: Turn, mean: Gradients, left: Sequence[Turn], rate: Rule) -> Arrival:
        """Return what a turn brings for this copy, which has this number. `left`: turns after it, which the anchor lacks then."""
        assert self._own is not None  # noqa: S101  # `begin` was called
        names = self.names[turn.arena]
        slots = {each.slot: _Views(names, each.own[number]) for each in (turn, *left) if each.iterations}
        return self._own.arrival(
            cast(LiveTurn, turn),
            cast(LoadedBucket, _Slots(slots)),
            cast(LoadedBucket, _Views(names, mean)),
            unmade=[name for name, each in zip(names, mean, strict=True) if each is None],
            rate=rate,
            left=cast(Sequence[LiveTurn], left),
        )

    def take_buffers(self, other: Copy) -> None:
        """Take the buffers of another copy, as ranks take those of rank 0 after a step."""
        with torch.no_grad():
            for own, others in zip(self.model.buffers(), other.model.buffers(), strict=True):
                own.copy_(others)

    def _forget(self) -> None:
        for bucket in self.buckets:
            for each in bucket:
                each.grad = None


class _Views(NamedTuple):
    """Part of a `LoadedBucket`: gradients by name."""

    names: tuple[str, ...]
    views: Gradients


class _Slots(NamedTuple):
    """Part of a `LoadedBucket`: one copy's sums, by turn."""

    slots: Mapping[int, _Views]


def _sum(terms: Sequence[Gradients]) -> list[torch.Tensor | None]:
    found = []
    for each in zip(*terms, strict=True):
        made = [gradient for gradient in each if gradient is not None]
        found.append(sum(made[1:], made[0]) if made else None)
    return found
