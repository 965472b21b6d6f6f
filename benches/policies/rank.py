"""One rank of `python -m benches policies`: trains copies of one model in turns, each with another way to communicate.

Started by `benches.policies.rows` on every rank; rank 0 writes the result as JSON. A contender is `ddp`, `ddp-f16`, `plan`, or a
policy's name, with agreed values after it: `empty,fusion_bytes=262144`.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

import hocket.torch as hk
from hocket.policies.load import load
from hocket.policy.policy import Policy
from hocket.tools.demo.task import TASKS

Step = Callable[[], float]


class Contender:
    """A model in training, step by step."""

    def __init__(self, name: str, model: str, seed: int) -> None:
        """Begin with the same parameters and batches as all contenders."""
        self.name = name
        self.times_s: list[float] = []
        self.losses: list[float] = []
        self._rank = int(os.environ["RANK"])
        torch.manual_seed(seed)
        self.network, optimizer, self._batch, self._loss = workload(model, seed, self._rank)
        self.model, self.optimizer = distribute(name, self.network, optimizer)

    def step(self) -> None:
        """Run zero_grad, forward, backward and step, timed from end to end."""
        inputs, targets = self._batch()
        began_s = time.perf_counter()
        self.optimizer.zero_grad()
        loss = self._loss(self.model(inputs), targets)
        loss.backward()
        self.optimizer.step()
        self.times_s.append(time.perf_counter() - began_s)
        self.losses.append(float(loss.detach()))

    def finish(self) -> None:
        """Finish outstanding work, which belongs to the measured steps."""
        began_s = time.perf_counter()
        self.model.state_dict()
        if self.times_s:
            self.times_s[-1] += time.perf_counter() - began_s


class Layers(nn.Module):
    """`count` square layers of `width`: as much communication as computation allows."""

    def __init__(self, count: int, width: int, parts: int = 1) -> None:
        """Begin without bias, and with `parts` gradients per layer, each for some of its outputs."""
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(width, width // parts, bias=False) for _ in range(count * parts)
        )
        self._parts = parts

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, width) to the same."""
        for first in range(0, len(self.layers), self._parts):
            outputs = [layer(x) for layer in self.layers[first : first + self._parts]]
            x = torch.tanh(outputs[0] if self._parts == 1 else torch.cat(outputs, 1))
        return x


def workload(name: str, seed: int, rank: int) -> tuple[nn.Module, torch.optim.Optimizer, Any, Any]:
    """Make model, optimizer, batches and loss: a task of the demo (`-sgd`: with plain SGD), `layers:COUNT:WIDTH:BATCH`;
    `parts:COUNT:WIDTH:BATCH:PARTS` has PARTS gradients a layer."""
    task = TASKS.get(name.removesuffix("-sgd"))
    if task is not None:
        model = task.model(seed)
        batches = task.batches(seed, rank)
        # Adam divides by the size of gradients, so that rounding errors of tiny gradients become steps.
        plain = name.endswith("-sgd")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02) if plain else task.optimizer(model)
        return model, optimizer, lambda: next(batches), task.loss
    _, count, width, batch, *parts = name.split(":")
    model = Layers(int(count), int(width), *map(int, parts))
    generator = torch.Generator().manual_seed(1000 * seed + rank)
    inputs, targets = torch.randn(2, int(batch), int(width), generator=generator)
    return (
        model,
        torch.optim.SGD(model.parameters(), lr=0.01),
        lambda: (inputs, targets),
        nn.functional.mse_loss,
    )


def distribute(
    name: str, model: nn.Module, optimizer: torch.optim.Optimizer
) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Distribute the model as a user would, by the contender's name."""
    kind, *values = name.split(",")
    if kind in ("ddp", "ddp-f16"):
        if not dist.is_initialized():
            dist.init_process_group("gloo")
        parallel = nn.parallel.DistributedDataParallel(model)
        if kind == "ddp-f16":
            parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
        return parallel, optimizer
    if kind == "plan":
        return hk.distribute(model, optimizer)
    return hk.distribute(model, optimizer, policy=policy(kind, values))


def policy(kind: str, values: list[str]) -> Policy:
    """Load a policy with some of its agreed values changed."""
    made = load(kind)
    changed = {key: json.loads(text) for key, text in (each.split("=") for each in values if each)}
    gates = changed.pop("gates", None)
    made.parameters = {**made.parameters, **changed}  # type: ignore[misc]  # of this instance
    if gates is not None:
        made.gates = gates  # type: ignore[misc]
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--contenders", required=True, help="separated by spaces")
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True, help="of each contender in a round")
    parser.add_argument("--warm-up", type=int, default=2, help="steps of each contender that do not count")
    parser.add_argument("--climb", default="", help="a contender that first trains alone, for --climb-steps")
    parser.add_argument("--climb-steps", type=int, default=400)
    parser.add_argument(
        "--error", action="store_true", help="measure the L2 error of the mean gradient instead"
    )
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    names = arguments.contenders.split()
    contenders = [Contender(name, arguments.model, seed=0) for name in names]
    result: dict[str, Any] = {}
    if arguments.error:
        result = {each.name: gradient_error(each) for each in contenders}
    else:
        for each in contenders:
            result[each.name] = {
                "start": climb(each, arguments.climb_steps) if each.name == arguments.climb else None
            }
            for _ in range(arguments.warm_up):
                each.step()
            each.finish()
            each.times_s, each.losses = [], []
        for _ in range(arguments.rounds):
            for each in contenders:
                for _ in range(arguments.steps):
                    each.step()
                each.finish()
        for each in contenders:
            result[each.name] |= {"times_s": each.times_s, "losses": each.losses}
    if contenders[0]._rank == 0:
        arguments.out.write_text(json.dumps(result))
    if dist.is_initialized():
        dist.barrier()
        dist.destroy_process_group()


def climb(contender: Contender, steps: int) -> list[dict[str, Any]]:
    """Train; return the setting and the time of each step, in order."""
    made = []
    for _ in range(steps):
        agreed = hk.agreed(contender.model)
        contender.step()
        setting = {name: agreed[name] for name in ("fusion_bytes", "chunk_bytes")}
        made.append({**setting, "step_s": contender.times_s[-1]})
    return made


def gradient_error(contender: Contender) -> float:
    """L2 error of the mean gradient over the norm of the mean: gradients are random, and known for all ranks."""
    world, rank = int(os.environ["WORLD_SIZE"]), contender._rank
    parameters = list(contender.network.parameters())

    def gradients(of: int) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(77 + of)
        return [torch.randn(each.shape, generator=generator) for each in parameters]

    exact = [torch.zeros(each.shape, dtype=torch.float64) for each in parameters]
    for other in range(world):
        for total, each in zip(exact, gradients(other), strict=True):
            total.add_(each.double() / world)
    own = iter(gradients(rank))
    wanted = {id(each): next(own) for each in parameters}
    contender.optimizer.zero_grad()
    inputs, _ = contender._batch()
    # The model's own backward order and buckets, with known gradients, which hooks put in place.
    hooks = [each.register_hook(lambda _grad, each=each: wanted[id(each)]) for each in parameters]
    contender.model(inputs).sum().backward()
    contender.model.state_dict()
    for hook in hooks:
        hook.remove()
    square = sum(
        float(((_grad(each) - total) ** 2).sum()) for each, total in zip(parameters, exact, strict=True)
    )
    norm = math.fsum(float((total**2).sum()) for total in exact)
    return float((square / norm) ** 0.5)


def _grad(parameter: nn.Parameter) -> torch.Tensor:
    assert parameter.grad is not None  # noqa: S101  # every parameter of these models has one
    return parameter.grad.double()


if __name__ == "__main__":
    main()
