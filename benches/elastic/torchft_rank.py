"""One replica of torchft's job, with torchft's DDP on Gloo or Hocket. It continues without replicas that die.

`python -m benches.elastic.torchft_rank DIRECTORY LIGHTHOUSE REPLICAS HEARTBEAT_MS TIMEOUT_MS BACKEND ADDRESS`: REPLICAS begin
together; ADDRESS is this replica's host for the others.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo

from benches.elastic.rank import losses
from hocket.tools.demo.task import TASKS
from hocket.torch import reconfigurable_group

POLL_S = 0.05
ANSWERS = timedelta(seconds=60)
"""Time-out for answers of torchft's own servers, its default. With less, a replica that waits for a processor raises and ends."""


class Noting(Manager):  # type: ignore[misc]  # of a package without types
    """Manager that notes the time at which a collective has failed."""

    notes: Path

    def report_error(self, error: Exception) -> None:
        with self.notes.open("a") as file:
            file.write(f"{time.monotonic()}\n")
        super().report_error(error)


def main() -> None:
    directory, lighthouse, replicas = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    beat, timeout = (timedelta(milliseconds=int(each)) for each in sys.argv[4:6])
    backend, address = sys.argv[6:8]
    torch.set_num_threads(1)
    store = TCPStore("0.0.0.0", 0, is_master=True, wait_for_workers=False)  # noqa: S104  # within a namespace
    network = TASKS["transformer"].model(0)
    sgd = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)

    def state() -> dict[str, Any]:
        return {"model": network.state_dict(), "optimizer": sgd.state_dict()}

    def load(saved: dict[str, Any]) -> None:
        network.load_state_dict(saved["model"])
        sgd.load_state_dict(saved["optimizer"])

    manager = Noting(
        pg=reconfigurable_group(timeout) if backend == "hocket" else ProcessGroupGloo(timeout=timeout),
        load_state_dict=load,
        state_dict=state,
        min_replica_size=2,
        timeout=ANSWERS,
        rank=0,
        world_size=1,
        store_addr=address,
        store_port=store.port,
        lighthouse_addr=lighthouse,
        replica_id=address,
        hostname=address,
        heartbeat_interval=beat,
    )
    model, optimizer = DistributedDataParallel(manager, network), Optimizer(manager, sgd)
    manager.notes = directory / f"{os.getpid()}.errors"
    (directory / f"{os.getpid()}.ready").write_text(address)
    while len(list(directory.glob("*.ready"))) < replicas:
        time.sleep(POLL_S)
    made = 0
    with (directory / f"{os.getpid()}.steps").open("w", buffering=1) as steps:
        batches = losses(model, "transformer", os.getpid())
        while True:
            optimizer.zero_grad()
            next(batches).backward()
            optimizer.step()
            if manager.current_step() > made:
                made = manager.current_step()
                # None: a newcomer, which takes the others' state in this step.
                if (rank := manager.participating_rank()) is not None:
                    steps.write(f"{time.monotonic()} {made} {rank} {manager.num_participants()}\n")


if __name__ == "__main__":
    main()
