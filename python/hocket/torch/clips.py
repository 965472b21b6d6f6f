"""Clipping where own gradients go first: the mean by its norm when it arrives, a rank's own gradients by an estimate of that norm.

A rank's own gradient has more noise and so a larger norm than the mean. Clipped by that norm, own steps would be too short: the
norm of the mean is estimated from the ratio of both at the last arrival.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch

from hocket.torch.older import total_norm
from hocket.training.memory.anchor import Arrival


class Clip(NamedTuple):
    """Request to clip the gradients of an iteration, and the norm of the rank's own ones."""

    max_norm: float
    norm_type: float
    own: float

    def factor(self, norm: float) -> float:
        """Return the factor of gradients of this norm, as in `torch.nn.utils.clip_grad_norm_`."""
        return min(1.0, self.max_norm / (norm + 1e-6))


class Clips:
    """Requests of iterations whose gradients are not in the anchor.

    Attributes:
        asked: by iteration.
        growth: norm of the mean over that of the rank's own gradients, as they arrived last.
    """

    def __init__(self) -> None:
        """Begin without a request."""
        self.asked: dict[int, Clip] = {}
        self.growth = 1.0
        self._norm = 0.0
        self._norms: dict[tuple[str, ...], tuple[float, float]] = {}
        """By the names of a turn's gradients, the norms of the last mean and of the rank's own one."""

    def ask(
        self, iteration: int, max_norm: float, norm_type: float, gradients: Sequence[torch.Tensor]
    ) -> torch.Tensor:
        """Clip the rank's own gradients of an iteration, and its mean when it arrives. Return an estimate of the mean's norm."""
        norm = total_norm(gradients, norm_type)
        self.asked[iteration] = Clip(max_norm, norm_type, float(norm))
        factor = self.of_own(iteration)
        if factor != 1.0:
            torch._foreach_mul_(list(gradients), factor)
        return norm * self.growth

    def arrive(self, arrivals: Sequence[Arrival]) -> None:
        """Take the norms of what arrives; that of gradients which do not arrive now is their last one."""
        iterations = [iteration for each in arrivals for iteration in each.iterations]
        asked = next((self.asked[each] for each in iterations if each in self.asked), None)
        if asked is None:
            return
        for each in arrivals:
            own = norm_of(each.own.views, asked.norm_type) / len(each.iterations)
            self._norms[tuple(each.mean.names)] = norm_of(each.mean.views, asked.norm_type), own
        self._norm, own = (
            norm_of(map(torch.tensor, norms), asked.norm_type)
            for norms in zip(*self._norms.values(), strict=True)
        )
        self.growth = self._norm / own if own > 0 and math.isfinite(self._norm / own) else 1.0

    def of_mean(self, iteration: int) -> float:
        """Return the factor of the mean that has arrived, in the anchor's step of this iteration."""
        asked = self.asked.get(iteration)
        return 1.0 if asked is None else asked.factor(self._norm)

    def of_own(self, iteration: int) -> float:
        """Return the factor of the rank's own gradient of this iteration."""
        asked = self.asked.get(iteration)
        return 1.0 if asked is None else asked.factor(asked.own * self.growth)


def norm_of(tensors: Iterable[torch.Tensor], norm_type: float) -> float:
    """Return the norm of all tensors together."""
    return float(total_norm(list(tensors), norm_type))
