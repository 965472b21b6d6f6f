"""A rank that trains with two lines: `autopilot_rank.py OUT KIND STEPS`.

KIND is one of `benches.autopilot.contenders`: `blind` begins with a ring, and the plan of `liar` is that ring. OUT's `KIND.steps`
has the steps so far.
"""

import json
import os
import sys
from pathlib import Path

import torch
from torch import nn

from benches.autopilot.contenders import distribute

WIDTH = 320
COMPARED = 20
"""Steps after which parameters are written."""


def made():
    """Network that is the same on all ranks, and its optimizer."""
    torch.manual_seed(0)
    network = nn.Sequential(
        *(layer for _ in range(5) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())), nn.Linear(WIDTH, 1)
    )
    return network, torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)


def loss_of(model, generator):
    return model(torch.randn(16, WIDTH, generator=generator)).square().mean()


def trained_alone(world, steps):
    """Parameters after the steps of so many ranks, made by one process."""
    network, optimizer = made()
    generators = [torch.Generator().manual_seed(rank) for rank in range(world)]
    for _ in range(steps):
        optimizer.zero_grad()
        torch.stack([loss_of(network, each) for each in generators]).mean().backward()
        optimizer.step()
    return parameters(network)


def main():
    """Trains, and writes its parameters, and the epoch of each step."""
    out, kind, steps = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    rank = int(os.environ.get("HOCKET_RANK") or os.environ["RANK"])
    torch.set_num_threads(1)
    network, optimizer = made()
    model, optimizer = distribute(kind, network, optimizer)
    generator = torch.Generator().manual_seed(rank)
    epochs = []
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss_of(model, generator).backward()
        optimizer.step()
        if kind != "gloo":
            import hocket.torch as hk

            epochs.append(hk.agreed(model)["epoch"])
        if rank == 0:
            (out / f"{kind}.steps").write_text(str(step))
        if step == COMPARED:
            torch.save(parameters(network), out / f"{kind}-{rank}-compared.pt")
    torch.save(parameters(network), out / f"{kind}-{rank}.pt")
    (out / f"{kind}-{rank}.json").write_text(json.dumps(epochs))
    if kind == "gloo":
        torch.distributed.destroy_process_group()


def parameters(network):
    return torch.cat([each.detach().flatten() for each in network.parameters()])


if __name__ == "__main__":
    main()
