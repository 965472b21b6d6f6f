"""A training with torchft's mocked gradients, whose ranks step alone, are lost and come again; each notes all its parameters."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

import hocket.torch as hk
from tests.torch.elastic_scripts import elastic_of

EVERY, RATE = 6, 2
"""Steps between exchanges, and the outer rate, as of the fixtures."""

PACE_S = 0.02
"""Time of a step, so that a process starts within some hundred of them."""


class Mocked(nn.Module):
    """A parameter whose gradient is 2, and one that moves as soon as anybody wants to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones((), dtype=torch.float64))
        self.flag = nn.Parameter(torch.zeros((), dtype=torch.float64))

    def forward(self, stop: float) -> torch.Tensor:
        return 2 * self.weight + stop * self.flag


def trained(directory: Path, name: str) -> None:
    """One rank, which trains until there is a file `stop`."""
    model = Mocked()
    model, optimizer = hk.distribute(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        promise=f"exact,local={EVERY}",
        local=hk.Local(every=EVERY, rate=RATE),
    )
    session, _ = elastic_of(model)
    name += f"-{os.environ.get('HOCKET_RANK', 'newcomer')}"
    with (directory / f"{name}.steps").open("w", buffering=1) as notes:
        stops = False
        while not stops:
            optimizer.zero_grad()
            time.sleep(PACE_S)
            stop = float((directory / "stop").exists())
            loss = model(stop)
            before, step = float(model.weight.detach()), session.iteration
            loss.backward()
            optimizer.step()
            record = {
                "step": step,
                "world": session.job.world,
                "process": os.getpid(),
                "before": before,
                "after": float(model.weight.detach()),
                "anchor": float(model.state_dict()["weight"]),
            }
            notes.write(json.dumps(record) + "\n")
            stops = bool(model.state_dict()["flag"] < 0)


if __name__ == "__main__":
    torch.set_num_threads(1)
    trained(Path(sys.argv[1]), sys.argv[2])
