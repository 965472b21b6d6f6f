"""The training script of all strategies: `python -m hocket.tools.demo.train --strategy ddp …`, on each rank.

An ordinary script under an ordinary launcher; only the functions at its end know the strategy. It writes `rank-N.json`
(times, losses, this rank's share of the held-out score) to `--out`. Rank 0 prints an event per step, one JSON object
per line, by which the comparison times its readings of the trunk's counters.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from torch import nn

from hocket.errors import UsageError
from hocket.tools.demo.events import Event, RankResult, rank_file
from hocket.tools.demo.task import TASKS, Task

STRATEGIES = ("ddp", "ddp-f16", "hocket")


class Distributed(NamedTuple):
    """This process among the ranks, with model and optimizer from the strategy, and the strategy's callbacks.

    `log(step, loss)` after every step, `leave()` in the end.
    """

    rank: int
    world: int
    model: nn.Module
    optimizer: torch.optim.Optimizer
    log: Callable[[int, float], None]
    leave: Callable[[], None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strategy", choices=STRATEGIES, required=True)
    parser.add_argument("--model", choices=TASKS, default="transformer")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True, help="folder for rank-N.json")
    parser.add_argument("--deadline-s", type=float, required=True, help="ends with a traceback after this")
    arguments = parser.parse_args()
    faulthandler.dump_traceback_later(arguments.deadline_s, exit=True)
    _train(TASKS[arguments.model], arguments)


def _train(chosen: Task, arguments: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    network = chosen.model(arguments.seed)
    distributed = _distribute(arguments.strategy, network, chosen.optimizer(network))
    rank, model, optimizer = distributed.rank, distributed.model, distributed.optimizer
    batches = chosen.batches(arguments.seed, rank)
    started_s, times_s, losses = time.perf_counter(), [], []
    _tell(rank, Event(what="training", step=0))
    for step in range(arguments.steps):
        inputs, targets = next(batches)
        optimizer.zero_grad()
        loss = chosen.loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        times_s.append(time.perf_counter() - started_s)
        distributed.log(step, losses[-1])
        _tell(rank, Event(what="training", step=step + 1, loss=losses[-1]))
    _tell(rank, Event(what="scoring", step=arguments.steps))
    score = chosen.score(network, rank, distributed.world)
    result = RankResult(
        rank=rank, times_s=times_s, losses=losses, score_total=score.total, score_count=score.count
    )
    rank_file(arguments.out, rank).write_bytes(msgspec.json.encode(result))
    distributed.leave()


def _tell(rank: int, event: Event) -> None:
    if rank == 0:
        sys.stdout.buffer.write(msgspec.json.encode(event) + b"\n")
        sys.stdout.buffer.flush()


def _distribute(strategy: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> Distributed:
    """Distribute the model by the lines that a user adds to a script; no strategy loads modules that only another one needs."""
    if strategy == "hocket":
        return _with_hocket(model, optimizer)
    return _with_ddp(model, optimizer, in_f16=strategy == "ddp-f16")


def _with_hocket(model: nn.Module, optimizer: torch.optim.Optimizer) -> Distributed:
    import hocket.torch as hk  # noqa: PLC0415

    model, optimizer = hk.distribute(model, optimizer)
    return Distributed(
        rank=hk.rank(model),
        world=hk.world(model),
        model=model,
        optimizer=optimizer,
        log=lambda step, loss: hk.log(model, step=step, loss=loss),
        leave=lambda: None,
    )


def _with_ddp(model: nn.Module, optimizer: torch.optim.Optimizer, *, in_f16: bool) -> Distributed:
    import torch.distributed as dist  # noqa: PLC0415
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks  # noqa: PLC0415

    variables = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in variables if name not in os.environ]
    if missing:
        raise UsageError(f"{missing[0]} is not set\nhint: start the ranks with torchrun or `hocket demo`")
    dist.init_process_group("gloo")
    parallel = nn.parallel.DistributedDataParallel(model)
    if in_f16:
        parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return Distributed(
        rank=dist.get_rank(),
        world=dist.get_world_size(),
        model=parallel,
        optimizer=optimizer,
        log=lambda _step, _loss: None,
        leave=dist.destroy_process_group,
    )


if __name__ == "__main__":
    main()
