"""Losses that overflow by their factor alone, and the factors that ranks with late gradients agree on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

HALF_MAX = 65504.0
INTERVAL = 4


def burst(iteration: int, rank: int) -> float:
    """By how much numbers inside a backward are larger than others."""
    return 16.0 if (5 * iteration + 3 * rank) % 17 == 0 else 1.0


class InHalf(torch.autograd.Function):
    """A loss whose backward goes through 16-bit numbers, in which it overflows by its factor alone."""

    @staticmethod
    def forward(ctx: Any, loss: torch.Tensor, by: float) -> torch.Tensor:
        ctx.by = by
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return (gradient * ctx.by).half().double() / ctx.by, None


def new_scaler() -> torch.amp.GradScaler:
    return torch.amp.GradScaler("cpu", init_scale=2.0**17, growth_interval=INTERVAL)


class Factors:
    """Factors of a loss by PyTorch's own scaler, as ranks agree on them: an overflow is told where the means would arrive.

    Attributes:
        of: by iteration.
        over: iterations and ranks whose gradients overflow.
    """

    def __init__(self, world: int) -> None:
        self.world = world
        self.of: list[float] = []
        self.over: set[tuple[int, int]] = set()
        self.scaler = new_scaler()
        self.found = False

    def made(self, iteration: int) -> None:
        now = self.scaler.get_scale()
        self.of.append(now)
        self.over |= {
            (iteration, rank) for rank in range(self.world) if now * burst(iteration, rank) > HALF_MAX
        }

    def fit(self, turns: Sequence[range]) -> bool:
        """Return whether turns that arrive together have not overflowed."""
        iterations = {each for turn in turns for each in turn}
        over = any((each, rank) in self.over for each in iterations for rank in range(self.world))
        # Gradients that were made before the factor shrank say nothing of it.
        if over and max(self.of[each] for each in iterations) <= self.scaler.get_scale():
            self.found = True
        return not over

    def update(self) -> None:
        parameter = nn.Parameter(torch.zeros(1))
        optimizer = torch.optim.SGD([parameter], lr=0.0)
        self.scaler.scale(parameter.sum()).backward()
        parameter.grad.fill_(torch.inf if self.found else 0.0)
        self.scaler.step(optimizer)
        self.scaler.update()
        self.found = False
