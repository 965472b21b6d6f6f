"""A rank whose autopilot meets what jobs do: `hazard_rank.py OUT STEPS`.

With 3 steps it ends at once; with more, it has forked workers and two models, and one rank is stopped for a while.
"""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import hocket.torch as hk

WIDTH = 256
STOPPED_RANK, STOPPED_S = 1, 2


def pause():
    """This process is stopped for a while, soon."""
    own = os.getpid()
    subprocess.Popen(["sh", "-c", f"sleep 0.2; kill -STOP {own}; sleep {STOPPED_S}; kill -CONT {own}"])


def made(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
    return hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01))


def main():
    out, steps = Path(sys.argv[1]), int(sys.argv[2])
    rank = int(os.environ["HOCKET_RANK"])
    torch.set_num_threads(1)
    models = [made(0)] if steps == 3 else [made(0), made(1)]
    data = TensorDataset(torch.randn(8 * steps, WIDTH, generator=torch.Generator().manual_seed(rank)))
    # Their processes are forked while the autopilot's threads run.
    workers = {} if steps == 3 else {"num_workers": 2, "multiprocessing_context": "fork"}
    for step, (inputs,) in enumerate(DataLoader(data, batch_size=8, **workers)):
        if step == 5 and rank == STOPPED_RANK:
            pause()
        # All ranks train still: when one has ended, the others' autopilots end, too.
        drives = sum(thread.name == "hocket-beside" for thread in threading.enumerate())
        for model, optimizer in models:
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
    digest = [float(each.double().sum()) for model, _ in models for each in model.parameters()]
    (out / f"{rank}.json").write_text(json.dumps([digest, drives]))


if __name__ == "__main__":
    main()
