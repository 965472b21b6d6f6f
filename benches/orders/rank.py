"""One rank of `python -m benches orders`: one workload in several orders of the ranks, one after the other, in turns.

Started on every host by `benches.orders.rows`; rank 0 writes seconds per turn and order as JSON. In an order, this process
takes the rank at which the order has its host, as if it had been started so: groups of other libraries are made anew.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]

from benches.orders.lightgbm_job import train
from benches.orders.native import NATIVE, native_program
from hocket.job.rendezvous import Job, join
from hocket.settings import Settings

TIMEOUT = timedelta(seconds=60)
WARM_UP = 2
Measure = Callable[[list[int], str], float]
"""Seconds per call or step in an order; the name is used once."""


def main() -> None:
    """Run every order in every turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workload", required=True, help="gloo, ddp, lightgbm, or an algorithm of Hocket's")
    parser.add_argument("--orders", required=True, help="JSON: lists of the hosts' indices")
    parser.add_argument("--turns", type=int, required=True)
    parser.add_argument("--calls", type=int, required=True)
    parser.add_argument("--size-bytes", type=int, required=True)
    parser.add_argument("--sizes", type=json.loads, default=[], help="JSON: of an algorithm of Hocket's")
    parser.add_argument("--piece-bytes", type=int, default=0, help="the same")
    parser.add_argument("--machines", required=True, help="IP addresses of the hosts, separated by commas")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    orders = json.loads(asked.orders)
    settings = Settings.from_environment()
    with join(settings) as job:
        measure, close = _workload(job, asked)
        times_s: list[list[float]] = [[] for _ in orders]
        for turn in range(asked.turns):
            for at, order in enumerate(orders):
                name = f"{turn}/{at}"
                own_s = measure(order, name)
                everyone = job.store.gather(f"orders/{name}", job.rank, job.world, own_s, settings.timeout_s)
                times_s[at].append(max(everyone))
        close()
        if job.rank == 0:
            asked.out.write_text(json.dumps(times_s))


def _workload(job: Job, asked: argparse.Namespace) -> tuple[Measure, Callable[[], None]]:
    if asked.workload in NATIVE:
        return _native(job, asked)
    if asked.workload == "lightgbm":
        machines = asked.machines.split(",")
        return (lambda order, name: train(job.rank, order, machines, name, asked.calls)), lambda: None
    store = TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=job.rank == 0, timeout=TIMEOUT
    )
    inside = _gloo if asked.workload == "gloo" else _ddp

    def measure(order: list[int], name: str) -> float:
        dist.init_process_group(
            "gloo",
            store=PrefixStore(name, store),
            rank=order.index(job.rank),
            world_size=job.world,
            timeout=TIMEOUT,
        )
        try:
            return inside(asked)
        finally:
            dist.destroy_process_group()

    return measure, lambda: None


def _gloo(asked: argparse.Namespace) -> float:
    bucket = torch.zeros(asked.size_bytes // 4)
    return _timed(lambda: dist.all_reduce(bucket), asked.calls)


def _ddp(asked: argparse.Namespace) -> float:
    """Time DDP with three layers, so that gradients have about the requested bytes; a batch of 32."""
    width = max(8, int((asked.size_bytes / 4 / 3) ** 0.5))
    torch.manual_seed(0)
    layers = [layer for _ in range(3) for layer in (nn.Linear(width, width), nn.ReLU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs, targets = torch.randn(32, width), torch.randn(32, width)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()

    return _timed(step, asked.calls)


def _timed(call: Callable[[], Any], calls: int) -> float:
    for _ in range(WARM_UP):
        call()
    dist.barrier()
    began_s = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - began_s) / calls


def _native(job: Job, asked: argparse.Namespace) -> tuple[Measure, Callable[[], None]]:
    """Time one of Hocket's programs on the engine, compiled for each order; its sum is checked."""
    engine = job.engine()
    memory = engine.allocate(asked.size_bytes)
    values = np.frombuffer(memoryview(memory), np.float32)

    def measure(order: list[int], name: str) -> float:
        program = native_program(
            asked.workload, tuple(asked.sizes), order, asked.size_bytes, asked.piece_bytes
        )
        number = engine.load(program, {0: (memory, 0)}, priority=0, label=name)
        values[:] = job.rank
        job.store.gather(f"orders/ready/{name}", job.rank, job.world, None, job.settings.timeout_s)
        began_s = time.perf_counter()
        for _ in range(asked.calls):
            engine.launch(number)
            engine.wait(number, job.settings.timeout_s)
        spent_s: float = (time.perf_counter() - began_s) / asked.calls
        # The mean of means is the mean: also after several calls.
        assert (values == (job.world - 1) / 2).all(), "a wrong sum"  # noqa: S101  # then its time is of no interest
        engine.unload(number)
        return spent_s

    return measure, engine.close


if __name__ == "__main__":
    main()
