"""What ranks of `test_profiled_learning.py` do: a loop that the profiler ends."""

from __future__ import annotations

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
