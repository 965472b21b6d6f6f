"""The script that `test_builder_plans.py` trains by plans of users' builders: `builder_scripts.py OUT`, as a user would write it.

Each rank leaves its parameters in OUT, and the bytes that it sent to each other one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

import hocket.torch as hk
from hocket.settings import Settings
from hocket.training.process import joined

STEPS = 4
WORDS, WIDTH = 3000, 16
TOUCHED = 20
"""Rows of a batch, all different."""


class Text(nn.Module):
    """A sparse embedding, large and small matrices, biases: every kind of variable."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.words = nn.Embedding(WORDS, WIDTH, sparse=True)
        self.body = nn.Sequential(nn.Linear(200, 300), nn.Tanh(), nn.Linear(300, 40))

    def forward(self, words: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        return self.body(features).square().sum() + self.words(words).square().sum()


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1000 * step + rank)
    words = torch.randperm(WORDS, generator=generator)[:TOUCHED]
    return words, torch.randn(4, 200, generator=generator)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.001)


def expected(world: int) -> dict[str, torch.Tensor]:
    """Parameters after as many steps with the mean of all ranks' gradients, in one process."""
    model = Text()
    optimizer = optimizer_of(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in range(world):
            (model(*batch(step, rank)) / world).backward()
        optimizer.step()
    return model.state_dict()


def main(out: Path) -> None:
    rank = int(os.environ["HOCKET_RANK"])
    # As if each rank were on a host of its own: ranks of one host read one another's memory, and send nothing.
    os.environ["HOCKET_HOST"] = f"h{rank}"
    model = Text()
    model, optimizer = hk.distribute(model, optimizer_of(model))
    engine = joined(Settings.from_environment()).engine
    before = engine.bytes_sent()
    for step in range(STEPS):
        optimizer.zero_grad()
        model(*batch(step, rank)).backward()
        optimizer.step()
    torch.save(model.state_dict(), out / f"{rank}.pt")
    sent = [now - then for now, then in zip(engine.bytes_sent(), before, strict=True)]
    (out / f"{rank}.json").write_text(json.dumps(sent))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
