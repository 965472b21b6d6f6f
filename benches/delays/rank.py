"""One rank of `python -m benches delays`: iterations of each plan in turns, with layers whose computation sleeps."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import hocket.torch as hk
import torch
from hocket.artefacts import files
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile

TURNS, ITERATIONS, WARM_UP = 3, 12, 4
"""Blocks of iterations of each plan, one plan after the other; the first iterations of a block do not count."""


class Paced(torch.autograd.Function):
    """A layer that takes so long in forward and in backward, and whose gradient is ones."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, forward_s: float, backward_s: float
    ) -> torch.Tensor:
        """Unchanged."""
        time.sleep(forward_s)
        ctx.backward_s = backward_s
        ctx.shape = weight.shape
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        """Made at the end of its time."""
        time.sleep(ctx.backward_s)
        return gradient, torch.ones(ctx.shape), None, None


class Layer(torch.nn.Module):
    """One gradient, and its share of the computation: a module of its own, so that it can have a gate."""

    def __init__(self, shape: tuple[int, ...], forward_s: float, backward_s: float) -> None:
        """All parameters are zero."""
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(shape))
        self.times_s = forward_s, backward_s

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Unchanged, later."""
        return Paced.apply(x, self.weight, *self.times_s)  # type: ignore[no-any-return]


def model_of(profile: Profile) -> torch.nn.Module:
    """A layer per gradient of the profile, in the order in which forward uses them."""
    count = len(profile.gradients)
    times_s = profile.forward_s / count, profile.backward_s / count
    layers = (Layer(each.shape, *times_s) for each in profile.gradients)
    return torch.nn.Sequential(*layers)


def main() -> None:
    """Rank 0 writes, by plan, the median of its iterations in each block."""
    directory, count, out = Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[4])
    profile = files.read(directory / "profile.json", Profile)
    trained = []
    for at in range(count):
        model = model_of(profile)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        plan = files.read(directory / f"{at}.json", Plan)
        trained.append(hk.distribute(model, optimizer, plan=plan))
    medians_s: list[list[float]] = [[] for _ in trained]
    x = torch.zeros(1, requires_grad=True)
    for _ in range(TURNS):
        for at, (model, optimizer) in enumerate(trained):
            times_s = []
            for _ in range(WARM_UP + ITERATIONS):
                began_s = time.perf_counter()
                optimizer.zero_grad()
                model(x).sum().backward()
                optimizer.step()
                times_s.append(time.perf_counter() - began_s)
            hk.flush(model)
            medians_s[at].append(median(times_s[WARM_UP:]))
    if os.environ["HOCKET_RANK"] == "0":
        out.write_text(json.dumps(medians_s))


if __name__ == "__main__":
    main()
