"""What ranks of `test_refused_delays.py` do: scripts as users write them, with a plan file of late gradients."""

from __future__ import annotations

from pathlib import Path

import msgspec
import torch

import hocket.torch as hk
from hocket.artefacts import files
from tests.torch.delayed_scripts import here, late_plan, loss_of, network

BATCH = 4
"""Of `loss_of`."""


def written(path: Path, world: int, **changed: int) -> None:
    """A plan of late gradients, for iterations of a backward of `BATCH` samples."""
    plan = late_plan(network(), world)
    files.write(path, msgspec.structs.replace(plan, **{"batch": BATCH, "accumulation": 1} | changed))


def looped(kind: str) -> int:
    """Iterations of a training that does something else in each step."""
    rank, _ = here()
    model = network()
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))
    for iteration in range(3):
        optimizer.zero_grad()
        if kind == "accumulates":
            with model.no_sync():
                loss_of(model, 10 + iteration, rank).backward()
        loss_of(model, iteration, rank).backward()
        optimizer.step()
    hk.flush(model)
    return 3
