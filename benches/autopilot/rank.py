"""One rank of `python -m benches autopilot`: trains with one contender and writes its steps' times.

`python -m benches.autopilot.rank CONTENDER MODEL STEPS OUT [PARAMETERS]`. CONTENDER is one of `benches.autopilot.contenders`. OUT's
`.steps` has the number of steps so far. PARAMETERS: file for rank 0's parameters after COMPARED steps.
"""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

import torch
from torch import nn

from benches.autopilot.contenders import BACKENDS, distribute
from hocket.tools.demo.task import TASKS

TINY = 64
COMPARED = 20
"""Steps after which parameters are compared."""


def main() -> None:
    contender, model, steps, out = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    rank = int(os.environ.get("HOCKET_RANK") or os.environ["RANK"])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network, batches = _task(model, rank)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    trained, optimizer = distribute(contender, network, optimizer)
    ended_s = [time.perf_counter()]
    for _ in range(steps):
        inputs, loss_of = next(batches)
        optimizer.zero_grad()
        loss_of(trained(inputs)).backward()
        optimizer.step()
        ended_s.append(time.perf_counter())
        _tell(out, rank, len(ended_s) - 1)
        if rank == 0 and len(sys.argv) > 5 and len(ended_s) - 1 == COMPARED:
            torch.save([each.detach() for each in network.parameters()], sys.argv[5])
    if rank == 0:
        out.write_text(json.dumps([b - a for a, b in pairwise(ended_s)]))
    if contender in BACKENDS:
        torch.distributed.destroy_process_group()


def _tell(out: Path, rank: int, steps: int) -> None:
    """Write the number of steps so far, by which the job's watcher changes the network."""
    if rank == 0:
        out.with_suffix(".steps").write_text(str(steps))


def _task(model: str, rank: int):  # type: ignore[no-untyped-def]
    if model == "tiny":
        network = nn.Sequential(nn.Linear(TINY, TINY), nn.Tanh(), nn.Linear(TINY, TINY))
        generator = torch.Generator().manual_seed(rank)
        return network, iter(
            lambda: (torch.randn(8, TINY, generator=generator), lambda y: y.square().mean()), None
        )
    task = TASKS[model]
    drawn = task.batches(0, rank)
    return task.model(0), ((inputs, lambda y, t=targets: task.loss(y, t)) for inputs, targets in drawn)


if __name__ == "__main__":
    main()
