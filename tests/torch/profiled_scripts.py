"""What ranks of `test_profiled_learning.py` do: a loop that the profiler ends."""

from __future__ import annotations

import hashlib
import io
import os
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

import hocket.torch as hk
from hocket.policies import TopK
from tests.torch import hostile
from tests.torch.delayed_scripts import here

SIZE, RATE, MOMENTUM, TRUTH, SPREAD = 400, 0.05, 0.8, 0.5, 0.3
"""The gradient is `TRUTH` in each direction, with noise on each rank."""


def profiled() -> None:
    rank, _ = here()
    model = nn.Linear(SIZE, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
    model, optimizer = hk.distribute(model, optimizer)
    draw = torch.Generator().manual_seed(rank)
    hk.curvature(model, lambda: 2.0 * model.weight.square().sum())
    for step in range(1000):
        optimizer.zero_grad()
        slope = TRUTH + SPREAD * torch.randn(1, SIZE, generator=draw)
        loss = model(slope).sum()
        loss.backward()
        optimizer.step()
        hk.log(model, loss=10.0 - step + rank)


def on_a_device() -> None:
    hostile.loaded(here()[0])
    model = nn.Linear(SIZE, 3).to(hostile.NAME)
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=RATE))
    inputs = torch.ones(2, SIZE, device=hostile.NAME)
    for _ in range(1000):
        optimizer.zero_grad()
        model(inputs).sum().backward()
        optimizer.step()


def loses(lost: str) -> None:
    """A rank ends in the middle of its profile."""
    rank, _ = here()
    model = nn.Linear(SIZE, 1)
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=RATE))
    for step in range(1000):
        if step == 4 and str(rank) == lost:
            os._exit(3)
        time.sleep(0.1)
        optimizer.zero_grad()
        model(torch.ones(2, SIZE)).sum().backward()
        optimizer.step()


def in_stages() -> None:
    """The model is another one after three steps, on each rank at its own time: one layer more, and one that is frozen now."""
    rank, _ = here()
    model = nn.Sequential(nn.Linear(SIZE, 6), nn.Linear(6, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    model, optimizer = hk.distribute(model, optimizer)
    for step in range(1000):
        if step == 3:
            time.sleep(0.2 * rank)
            model.append(nn.Linear(4, 2))
            model[0].requires_grad_(False)
            trained = [*model[1].parameters(), *model[2].parameters()]
            model, optimizer = hk.distribute(model, torch.optim.SGD(trained, lr=RATE))
        optimizer.zero_grad()
        # More samples in the first stage, whose steps must not count.
        model(torch.ones(5 if step < 3 else 2, SIZE)).sum().backward()
        optimizer.step()


def of_state(state: dict[str, Any]) -> str:
    """A digest of all that `hk.state_dict` returned."""
    file = io.BytesIO()
    torch.save(state, file)
    return hashlib.sha256(file.getvalue()).hexdigest()


def resumed() -> tuple[nn.Module, torch.optim.Optimizer, list[int]]:
    """A model with a policy that keeps residuals, and state of the script's own."""
    model = nn.Linear(SIZE, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    model, optimizer = hk.distribute(model, optimizer, policy=TopK())
    count = [0]
    hk.extra_state(model, "count", lambda: count[0], lambda value: count.__setitem__(0, value))
    return model, optimizer, count


def train(model: nn.Module, optimizer: torch.optim.Optimizer, count: list[int], steps: int) -> None:
    draw = torch.Generator().manual_seed(here()[0])
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(4, SIZE, generator=draw)).square().mean().backward()
        optimizer.step()
        count[0] += 1


def saves(directory: str) -> str:
    """A job that leaves a checkpoint after some steps."""
    model, optimizer, count = resumed()
    train(model, optimizer, count, 4)
    state = hk.state_dict(model)
    torch.save(state, Path(directory) / f"first-{hk.rank(model)}.pt")
    return of_state({**state, "extra": None})


def goes_on_in_a_profile(directory: str) -> None:
    """A script that saves a checkpoint in its profile, before the profiler ends it."""
    model, optimizer, count = resumed()
    rank = hk.rank(model)
    hk.load_state_dict(model, torch.load(Path(directory) / f"first-{rank}.pt", weights_only=True))
    train(model, optimizer, count, 2)
    torch.save(hk.state_dict(model), Path(directory) / f"second-{rank}.pt")
    train(model, optimizer, count, 1000)


def goes_on(directory: str) -> tuple[str, int]:
    """A job that goes on from what the profile has left."""
    model, optimizer, count = resumed()
    rank = hk.rank(model)
    hk.load_state_dict(model, torch.load(Path(directory) / f"second-{rank}.pt", weights_only=True))
    found = of_state({**hk.state_dict(model), "extra": None}), count[0]
    train(model, optimizer, count, 2)
    return found
