"""One rank of `python -m benches elastic`: trains until it is ended, and notes the time of each step's end.

`python -m benches.elastic.rank DIRECTORY MODEL`. MODEL: `transformer`, the demo's; a number of bytes, most of them frozen
parameters; `trained-BYTES`, so many of trained parameters and AdamW's state of them; or `sites`, layers that wait, of ranks that
step alone.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import nn

import hocket.torch as hk
from benches.delays import sites
from benches.delays.rank import model_of
from benches.elastic.sites import LOCAL
from hocket.tools.demo import data
from hocket.tools.demo.task import TASKS

WIDTH, BATCH = 256, 8
FLOAT_BYTES = 4
LAYER_WIDTH, COPIES = 2048, 3
"""Width of a trained model's layers, and copies of its parameters with AdamW's two moments."""


class Frozen(nn.Module):
    """A small trained part on top of many frozen parameters, like adapters of large models."""

    def __init__(self, size_bytes: int) -> None:
        """Begin with about `size_bytes` in all."""
        super().__init__()
        self.frozen = nn.Parameter(torch.randn(size_bytes // FLOAT_BYTES), requires_grad=False)
        self.adapter = nn.Linear(WIDTH, WIDTH)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Apply the adapter; inputs have shape (batch, width)."""
        adapted: torch.Tensor = self.adapter(inputs + self.frozen[:WIDTH])
        return adapted


def trained(size_bytes: int) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Layers whose parameters and optimizer state take about so many bytes."""
    layers = round(size_bytes / (COPIES * FLOAT_BYTES * LAYER_WIDTH**2))
    parts = [each for _ in range(layers) for each in (nn.Linear(LAYER_WIDTH, LAYER_WIDTH), nn.Tanh())]
    network = nn.Sequential(nn.Linear(WIDTH, LAYER_WIDTH), *parts)
    return network, torch.optim.AdamW(network.parameters(), lr=1e-4)


def main() -> None:
    directory, kind = Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network: nn.Module
    optimizer: torch.optim.Optimizer
    local = None
    if kind == "sites":
        network, local = model_of(sites.CASES[sites.SMALL].profile()), LOCAL
        optimizer = torch.optim.AdamW(network.parameters(), lr=1e-4)
    elif kind.startswith("trained-"):
        network, optimizer = trained(int(kind.removeprefix("trained-")))
    else:
        network = TASKS["transformer"].model(0) if kind == "transformer" else Frozen(int(kind))
        own = [each for each in network.parameters() if each.requires_grad]
        optimizer = torch.optim.SGD(own, lr=0.01, momentum=0.9)
    if kind == "transformer":
        # The others wait for what a newcomer does between this call and its first step.
        data.library_text()
    model, optimizer = hk.distribute(network, optimizer, local=local)
    with (directory / f"{os.getpid()}.steps").open("w", buffering=1) as steps:
        for step, loss in enumerate(losses(model, kind, os.getpid()), 1):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps.write(f"{time.monotonic()} {step} {hk.rank(model)} {hk.world(model)}\n")


def losses(model: nn.Module, kind: str, seed: int) -> Iterator[torch.Tensor]:
    if kind == "sites":
        x = torch.zeros(1, requires_grad=True)
        while True:
            yield model(x).sum()
    if kind != "transformer":
        while True:
            yield model(torch.randn(BATCH, WIDTH)).square().mean()
    task = TASKS["transformer"]
    for inputs, targets in task.batches(0, seed):
        yield task.loss(model(inputs), targets)


if __name__ == "__main__":
    main()
