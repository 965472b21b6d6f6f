"""Late means with own gradients first, by one process with a working copy for each rank and PyTorch's own optimizers."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import torch
from torch import nn

from hocket.artefacts.plan import Schedule
from tests.sessions.plans import schedule_of, turns_of
from tests.torch.delayed_scripts import OPTIMIZERS, RATE, Optimizer, due, loss_of, network
from tests.torch.factors import Factors

KINDS: dict[str, Optimizer] = {
    **OPTIMIZERS,
    "rmsprop": lambda parameters: torch.optim.RMSprop(parameters, lr=RATE, momentum=0.5),
    "adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=RATE),
    "adafactor": lambda parameters: torch.optim.Adafactor(parameters, lr=0.01),
    "fused": lambda parameters: torch.optim.AdamW(parameters, lr=RATE, fused=True),
    "radam": lambda parameters: torch.optim.RAdam(parameters, lr=RATE),
}


class Centre(nn.Module):
    """Values without their mean in earlier batches, a buffer: what a rank computes depends on whose buffer it holds."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = x - self.mean
        self.mean.lerp_(x.detach().mean(0), 0.25)
        return found


def with_buffers() -> nn.Module:
    torch.manual_seed(3)
    # Not before the norm: a bias there has no gradient but rounding, which optimizers without an epsilon make a whole step of.
    first = nn.Linear(5, 7), nn.Tanh()
    return nn.Sequential(*first, nn.BatchNorm1d(7), Centre(7), nn.Linear(7, 3)).double()


class Case(NamedTuple):
    """A training that is compared with the reference. `each`: buckets have different turns; `buffers`: the model has some."""

    lengths: tuple[int, ...]
    delay: int
    each: bool
    kind: str
    clip: float | None
    decays: bool
    micro: int
    scaled: bool = False
    buffers: bool = False

    def network(self) -> nn.Module:
        return with_buffers() if self.buffers else network()

    def schedule(self) -> Schedule:
        made = schedule_of(self.lengths, self.delay, 2, self.rule)
        if self.each:
            other = turns_of(self.lengths[::-1], self.other_delay)
            made = msgspec.structs.replace(
                made,
                together=False,
                turns=(made.turns[0], other),
                delay_max=max(self.delay, self.other_delay),
            )
        return msgspec.structs.replace(made, steps="own first")

    @property
    def other_delay(self) -> int:
        return (self.delay + 1) % 2

    @property
    def rule(self) -> str:
        return (
            "sqrt" if self.kind in ("adam", "adamw", "fused", "rmsprop", "radam", "adafactor") else "linear"
        )


def flat(tensors: Any) -> torch.Tensor:
    return torch.cat([each.detach().cpu().flatten().clone() for each in tensors])


class Reference:
    """Training of one process: an anchor and a working copy for each rank, each with PyTorch's own optimizer."""

    def __init__(self, case: Case, world: int) -> None:
        self.case, self.world = case, world
        self.anchor = case.network()
        self.optimizer = self._optimizer(self.anchor)
        self.models = [case.network() for _ in range(world)]
        self.optimizers = [self._optimizer(each) for each in self.models]
        self.own: list[list[list[torch.Tensor]]] = []
        """By iteration and rank, gradients."""
        self.norms: list[list[float]] = []
        own = (case.lengths, case.delay)
        other = (case.lengths[::-1], case.other_delay) if case.each else own
        self.buckets = [(slice(2, None), due(*own)), (slice(2), due(*other))]
        self.applied = [0, 0]
        self.growth = [1.0] * world
        self.factors = Factors(world) if case.scaled else None

    def iterate(self, iteration: int) -> None:
        case = self.case
        made = []
        for rank, model in enumerate(self.models):
            model.zero_grad()
            for at in [*(1000 * (micro + 1) + iteration for micro in range(case.micro - 1)), iteration]:
                loss_of(model, at, rank).backward()
            made.append([each.grad.clone() for each in model.parameters()])
        self._give_buffers()
        self.own.append(made)
        self.norms.append([float(flat(each).norm()) for each in made])
        arrived = {
            at: turns[iteration]
            for at, (_, turns) in enumerate(self.buckets)
            if iteration in turns and turns[iteration][1] <= len(self.own)
        }
        if self.factors is not None:
            self.factors.made(iteration)
        fits = self._fit(arrived.values())
        for at, turn in arrived.items():
            self._arrive(at, *turn, fits=fits)
        if self.factors is not None:
            self.factors.update()
        for rank in range(self.world):
            for at in (0, 1):
                if at not in arrived:
                    if not self._overflowed(rank, range(iteration, iteration + 1)):
                        self._own_step(rank, at, iteration, self.own[iteration][rank])
                    continue
                for begin, end in self._lacking(at):
                    if self._overflowed(rank, range(begin, end)):
                        continue
                    mean = [
                        torch.stack(each).mean(0)
                        for each in zip(*(self.own[each][rank] for each in range(begin, end)), strict=True)
                    ]
                    for each in range(begin, end):
                        self._own_step(rank, at, each, mean)

    def _give_buffers(self) -> None:
        """Give all ranks, and the anchor, the first rank's buffers."""
        for own in (*self.models[1:], self.anchor):
            for mine, first in zip(own.buffers(), self.models[0].buffers(), strict=True):
                mine.copy_(first)

    def flush(self) -> None:
        rounds = itertools.zip_longest(*(self._lacking(at) for at in (0, 1)))
        for turns in list(rounds):
            arrived = {at: turn for at, turn in enumerate(turns) if turn is not None}
            fits = self._fit(arrived.values())
            for at, turn in arrived.items():
                self._arrive(at, *turn, fits=fits)

    def _fit(self, turns: Any) -> bool:
        """Return whether no gradient in what arrives has overflowed on any rank."""
        return self.factors is None or self.factors.fit([range(*each) for each in turns])

    def _overflowed(self, rank: int, iterations: range) -> bool:
        return self.factors is not None and any((each, rank) in self.factors.over for each in iterations)

    def _lacking(self, at: int) -> Sequence[tuple[int, int]]:
        """Turns of a bucket that the anchor lacks."""
        lengths = self.case.lengths[::-1] if at == 1 and self.case.each else self.case.lengths
        found, begin = [], 0
        for length in itertools.cycle(lengths):
            if begin >= len(self.own):
                return found
            if begin >= self.applied[at]:
                found.append((begin, min(begin + length, len(self.own))))
            begin += length
        return found

    def _arrive(self, at: int, begin: int, end: int, *, fits: bool) -> None:
        """The anchor takes a turn that fits; working copies begin anew from it."""
        count = end - begin
        gradients = [each for iteration in range(begin, end) for each in self.own[iteration]]
        mean = [torch.stack(each).mean(0) for each in zip(*gradients, strict=True)]
        if self.case.clip is not None and fits:
            for rank in range(self.world):
                own = [
                    torch.stack(each).mean(0)
                    for each in zip(*(self.own[each][rank] for each in range(begin, end)), strict=True)
                ]
                self.growth[rank] = float(flat(mean).norm() / flat(own).norm())
        factor = {"linear": 1.0, "sqrt": count**0.5 / count}[self.case.rule]
        for iteration in range(begin, end) if fits else ():
            clip = 1.0
            if self.case.clip is not None:
                clip = min(1.0, self.case.clip / (float(flat(mean).norm()) + 1e-6))
            self._step(self.anchor, self.optimizer, at, iteration, [each * clip for each in mean], factor)
        self.applied[at] = end
        of = self.buckets[at][0]
        for model, optimizer in zip(self.models, self.optimizers, strict=True):
            for own, anchored in zip(
                list(model.parameters())[of], list(self.anchor.parameters())[of], strict=True
            ):
                own.data.copy_(anchored.data)
                optimizer.state[own] = copy.deepcopy(self.optimizer.state[anchored])

    def _own_step(self, rank: int, at: int, iteration: int, gradients: Sequence[torch.Tensor]) -> None:
        factor = 1.0
        if self.case.clip is not None:
            factor = min(1.0, self.case.clip / (self.norms[iteration][rank] * self.growth[rank] + 1e-6))
        self._step(
            self.models[rank],
            self.optimizers[rank],
            at,
            iteration,
            [each * factor for each in gradients],
            1.0,
        )

    def _step(self, model, optimizer, at, iteration, gradients, factor) -> None:  # noqa: PLR0917
        of = self.buckets[at][0]
        for each in model.parameters():
            each.grad = None
        for each, gradient in zip(list(model.parameters())[of], gradients[of], strict=True):
            each.grad = gradient.clone()
        base = KINDS[self.case.kind](list(network().parameters())).param_groups[0]["lr"]
        for group in optimizer.param_groups:
            group["lr"] = base * (0.97 if self.case.decays else 1.0) ** iteration * factor
        optimizer.step()

    def _optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return KINDS[self.case.kind](list(model.parameters()))
