"""A rank whose wire is slowed by itself: `emulated_rank.py OUT`."""

import json
import os
import sys
import time
from pathlib import Path

import torch

import hocket.torch as hk
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce
from hocket.planning.buckets import buckets, plan_of

WORLD, STEPS, SIDE = 2, 3, 700
BYTES = STEPS * SIDE * SIDE * 4
"""Bytes that a rank sends in all steps: half of the gradient, then the half that it has summed up."""


def made():
    torch.manual_seed(0)
    model = torch.nn.Linear(SIDE, SIDE, bias=False)
    return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def loss_of(model, step, rank):
    drawn = torch.Generator().manual_seed(100 * step + rank)
    return model(torch.randn(4, SIDE, generator=drawn)).square().mean()


def alone():
    """Parameters after the same steps, made by one process."""
    model, optimizer = made()
    for step in range(STEPS):
        optimizer.zero_grad()
        torch.stack([loss_of(model, step, rank) for rank in range(WORLD)]).mean().backward()
        optimizer.step()
    return model.weight.detach()


def main():
    out, rank = Path(sys.argv[1]), int(os.environ["HOCKET_RANK"])
    torch.set_num_threads(1)
    model, optimizer = made()
    weight = Gradient("weight", (SIDE, SIDE), "f32")
    plan = plan_of(buckets([[weight]], AllReduce(algorithm="ring"), range(WORLD)), WORLD, label="ring")
    model, optimizer = hk.distribute(model, optimizer, plan=plan)
    began_s = time.monotonic()
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step, rank).backward()
        optimizer.step()
    took_s = time.monotonic() - began_s
    torch.save(model.weight.detach(), out / f"{rank}.pt")
    (out / f"{rank}.json").write_text(json.dumps(took_s))


if __name__ == "__main__":
    main()
