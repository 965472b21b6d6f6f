"""What ranks of `test_profiled_learning.py` do: a loop that the profiler ends."""

from __future__ import annotations

import time

import torch
from torch import nn

import hocket.torch as hk
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
