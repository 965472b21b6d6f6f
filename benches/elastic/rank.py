"""One rank of `python -m benches elastic`: trains until it is ended, and notes the time of each step's end.

`python -m benches.elastic.rank DIRECTORY MODEL`. MODEL: `transformer`, the demo's; or a number of bytes, most of them frozen
parameters.
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
from hocket.tools.demo.task import TASKS

WIDTH, BATCH = 256, 8
FLOAT_BYTES = 4


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


def main() -> None:
    directory, kind = Path(sys.argv[1]), sys.argv[2]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = TASKS["transformer"].model(0) if kind == "transformer" else Frozen(int(kind))
    trained = [each for each in network.parameters() if each.requires_grad]
    optimizer: torch.optim.Optimizer = torch.optim.SGD(trained, lr=0.01, momentum=0.9)
    model, optimizer = hk.distribute(network, optimizer)
    with (directory / f"{os.getpid()}.steps").open("w", buffering=1) as steps:
        for step, loss in enumerate(losses(model, kind, os.getpid()), 1):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps.write(f"{time.monotonic()} {step} {hk.rank(model)} {hk.world(model)}\n")


def losses(model: nn.Module, kind: str, seed: int) -> Iterator[torch.Tensor]:
    if kind != "transformer":
        while True:
            yield model(torch.randn(BATCH, WIDTH)).square().mean()
    task = TASKS["transformer"]
    for inputs, targets in task.batches(0, seed):
        yield task.loss(model(inputs), targets)


if __name__ == "__main__":
    main()
