"""One rank of TorchElastic's job: DDP on Gloo, with a checkpoint in memory after each step, from which its successor continues.

`python -m benches.elastic.torchelastic_rank DIRECTORY`, under torchrun.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch
from torch import nn

from benches.elastic.rank import losses
from hocket.tools.demo.task import TASKS


def main() -> None:
    directory = Path(sys.argv[1])
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
    network = TASKS["transformer"].model(0)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    newest = directory / f"{rank}.checkpoint"
    before = 0
    if newest.exists():
        saved = torch.load(newest)
        network.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        before = saved["step"]
    model = nn.parallel.DistributedDataParallel(network)
    with (directory / f"{os.getpid()}.steps").open("w", buffering=1) as steps:
        for step, loss in enumerate(losses(model, "transformer", rank), before + 1):
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            saved = {"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
            torch.save(saved, newest.with_suffix(".new"))
            newest.with_suffix(".new").replace(newest)
            steps.write(f"{time.monotonic()} {step} {rank} {world}\n")


if __name__ == "__main__":
    main()
