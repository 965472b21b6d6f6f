"""One rank of `hocket bench methods`: it makes all runs of a request; rank 0 writes what each brings, and tells of it.

A run is an ordinary script: a model, AdamW, batches of the rank's own, a loop. Only the lines that distribute differ by method.
"""

from __future__ import annotations

import contextlib
import faulthandler
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn import functional

import hocket.torch as hk
from hocket import typed
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Plan
from hocket.planning.buckets import buckets, plan_of
from hocket.policies import READY_MADE
from hocket.tools.bench.methods import torchft_diloco
from hocket.tools.bench.methods.catalogue import METHODS, Method, plan_of_method
from hocket.tools.bench.methods.request import Point, Request, Run, Trained
from hocket.tools.demo import data
from hocket.tools.demo.models import DigitsNet, Transformer

BATCH = 16
"""Samples of a rank's batch."""

CONTEXT = 32
BUCKETS = 4
POWER_SGD_BEGINS = 10
"""Steps with exact means before DDP's PowerSGD hook begins."""

Batches = Iterator[tuple[torch.Tensor, torch.Tensor]]


class Task(NamedTuple):
    """Task to learn: a model, each rank's batches by seed, and samples that no rank trains on."""

    model: Callable[[], nn.Module]
    batches: Callable[[int, int], Batches]
    held_out: tuple[torch.Tensor, torch.Tensor]


class Trainer(NamedTuple):
    """A model that trains by a method: `saves` gives what a job would save, `finish` applies what is open, `leave` ends it."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    saves: Callable[[], dict[str, Any]]
    finish: Callable[[], None]
    leave: Callable[[], None]


def main() -> None:
    asked, written = Path(sys.argv[1]), Path(sys.argv[2])
    request = typed.of_json(asked.read_bytes(), Request)
    torch.set_num_threads(1)
    # What is evaluated lacks what is open on purpose: it is what a job would save then.
    warnings.filterwarnings("ignore", message="the model's state was saved without")
    task = TASKS[request.model]()
    found = []
    for number, run in enumerate(request.runs, 1):
        faulthandler.dump_traceback_later(request.deadline_s, exit=True)
        found.append(_trained(task, run, request))
        faulthandler.cancel_dump_traceback_later()
        if _rank() == 0:
            _tell(number, len(request.runs), found[-1])
            written.write_bytes(msgspec.json.encode(found))
    if dist.is_initialized():
        dist.destroy_process_group()


def _trained(task: Task, run: Run, request: Request) -> Trained:
    torch.manual_seed(run.seed)
    seen = task.model()
    model = task.model()
    seen.load_state_dict(model.state_dict())
    trainer = _trainer(
        METHODS[run.method], model, torch.optim.AdamW(model.parameters(), lr=run.rate), request
    )
    batches = task.batches(run.seed, _rank())
    marks = {round(request.steps * at / request.evaluations) for at in range(1, request.evaluations + 1)}
    points, paused_s, began_s = [], 0.0, time.perf_counter()
    for step in range(1, request.steps + 1):
        inputs, targets = next(batches)
        trainer.optimizer.zero_grad()
        loss = _loss(trainer.model(inputs), targets)
        if request.think_s:
            time.sleep(request.think_s)
        loss.backward()
        trainer.optimizer.step()
        if step in marks:
            if step == request.steps:
                trainer.finish()
            at_s = time.perf_counter()
            points.append(
                Point(step=step, time_s=at_s - began_s - paused_s, loss=_held_out(task, seen, trainer))
            )
            paused_s += time.perf_counter() - at_s
            if points[-1].loss is None:
                # The anchor and DDP's replicas are alike, so all ranks end here.
                break
    trainer.leave()
    return Trained(run=run, points=tuple(points))


def _tell(number: int, count: int, trained: Trained) -> None:
    run, last = trained.run, trained.points[-1]
    ended = "diverged" if last.loss is None else f"loss {last.loss:.4f} after {last.time_s:.1f} s"
    sys.stdout.write(f"{number} of {count}: {run.method}, rate {run.rate:g}, seed {run.seed}: {ended}\n")
    sys.stdout.flush()


def _held_out(task: Task, seen: nn.Module, trainer: Trainer) -> float | None:
    seen.load_state_dict(trainer.saves())
    inputs, targets = task.held_out
    with torch.no_grad():
        loss = float(_loss(seen(inputs), targets))
    return loss if math.isfinite(loss) else None


def _loss(made: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(made.flatten(0, -2), targets.flatten())


def _trainer(method: Method, model: nn.Module, optimizer: torch.optim.Optimizer, request: Request) -> Trainer:
    if method.by == "ddp":
        return _with_ddp(method, model, optimizer, request)
    if method.by == "torchft":
        return _with_torchft(method, model, optimizer, request)
    options: dict[str, Any] = {"local": method.local}
    if method.policy is None:
        options = {"plan": plan_of_method(method, _plan(model))}
    else:
        options["policy"] = READY_MADE[method.policy]()
    made, optimizer = hk.distribute(model, optimizer, **options)
    return Trainer(made, optimizer, made.state_dict, lambda: hk.flush(made), lambda: hk.flush(made))


def _with_ddp(
    method: Method, model: nn.Module, optimizer: torch.optim.Optimizer, request: Request
) -> Trainer:
    _meet(request)
    parallel = nn.parallel.DistributedDataParallel(model)
    if method.hook == "f16":
        parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif method.hook == "power_sgd":
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=2, start_powerSGD_iter=POWER_SGD_BEGINS
        )
        parallel.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return Trainer(parallel, optimizer, model.state_dict, lambda: None, lambda: None)


def _with_torchft(
    method: Method, model: nn.Module, optimizer: torch.optim.Optimizer, request: Request
) -> Trainer:
    assert method.local is not None  # noqa: S101  # it has no other methods here
    _meet(request)
    host = os.environ["MASTER_ADDR"]
    replica = torchft_diloco.joined(model, optimizer, method.local, host=host, timeout_s=request.deadline_s)
    return Trainer(model, optimizer, replica.saves, lambda: None, replica.leave)


def _meet(request: Request) -> None:
    """Meet at Gloo's default group."""
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=timedelta(seconds=request.deadline_s))


def _plan(model: nn.Module) -> Plan:
    """Return a plan of rings, one for each of `BUCKETS` parts of the model of about equal size, the last layers first."""
    gradients = [Gradient(name, tuple(each.shape), "f32") for name, each in model.named_parameters()][::-1]
    parts: list[list[Gradient]] = [[] for _ in range(BUCKETS)]
    whole, filled = sum(each.elements for each in gradients), 0
    for each in gradients:
        parts[min(BUCKETS - 1, filled * BUCKETS // whole)].append(each)
        filled += each.elements
    ring = AllReduce(algorithm="ring")
    return plan_of(buckets([own for own in parts if own], ring, range(_world())), _world(), label="rings")


def _bytes_task() -> Task:
    text, held_out = data.library_text()

    def pieces(of: Any, starts: Any) -> tuple[torch.Tensor, torch.Tensor]:
        piece = torch.stack([torch.from_numpy(of[at : at + CONTEXT + 1].astype("int64")) for at in starts])
        return piece[:, :-1], piece[:, 1:]

    def batches(seed: int, rank: int) -> Batches:
        for starts in data.draws(seed, rank, len(text) - CONTEXT - 1, BATCH):
            yield pieces(text, starts)

    fixed = pieces(held_out, range(0, len(held_out) - CONTEXT - 1, 256))
    return Task(lambda: Transformer(width=32, layers=2, heads=4), batches, fixed)


def _digits_task() -> Task:
    (images, labels), held_out = (tuple(map(torch.from_numpy, each)) for each in data.digits())

    def batches(seed: int, rank: int) -> Batches:
        for at in data.draws(seed, rank, len(images), BATCH):
            yield images[at], labels[at]

    return Task(DigitsNet, batches, (held_out[0], held_out[1]))


TASKS = {"bytes": _bytes_task, "digits": _digits_task}


def _rank() -> int:
    return int(os.environ["RANK"])


def _world() -> int:
    return int(os.environ["WORLD_SIZE"])


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
