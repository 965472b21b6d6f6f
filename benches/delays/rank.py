"""One rank of `python -m benches delays`: contenders train in turns, with layers whose computation is a wait.

`python -m benches.delays.rank FOLDER --out FILE`. FOLDER has the model's profile, the contenders, and how long they train. In a
first turn every variant of a contender trains a few iterations, and the fastest one is kept.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import hocket.torch as hk
from benches.delays.contest import Contender, Course, Ddp, Measured, Never, Planned
from hocket.artefacts import files
from hocket.artefacts.profile import Profile
from hocket.settings import Settings


class Paced(torch.autograd.Function):
    """A layer with given times in forward and backward, whose gradients are ones."""

    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, forward_s: float, backward_s: float, *weights: torch.Tensor
    ) -> torch.Tensor:
        """Return the input. Weights are read, since gates are at modules that visibly use a parameter."""
        began_s = time.perf_counter()
        ctx.backward_s = backward_s
        ctx.shapes = [weight.view_as(weight).shape for weight in weights]
        unchanged = x.clone()
        _stretch(began_s, forward_s)
        return unchanged

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Produce the gradients at the end of the layer's time."""
        began_s = time.perf_counter()
        made = [torch.ones(shape) for shape in ctx.shapes]
        _stretch(began_s, ctx.backward_s)
        return gradient, None, None, *made


def _stretch(began_s: float, length_s: float) -> None:
    time.sleep(max(0.0, began_s + length_s - time.perf_counter()))


class Layer(torch.nn.Module):
    """Gradients, and their share of the computation: an own module, so that it can have a gate."""

    def __init__(self, shapes: Sequence[tuple[int, ...]], forward_s: float, backward_s: float) -> None:
        super().__init__()
        for number, shape in enumerate(shapes):
            self.register_parameter(str(number), torch.nn.Parameter(torch.zeros(shape)))
        self.times_s = forward_s, backward_s

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Paced.apply(x, *self.times_s, *self.parameters(recurse=False))  # type: ignore[no-any-return]


def model_of(profile: Profile) -> torch.nn.Module:
    """Make the layers of a profile of `benches.delays.cases`, with their times."""
    layers = [
        list(own) for _, own in itertools.groupby(profile.gradients, lambda each: each.name.split(".")[0])
    ]
    needed_s = [own[0].needed_s for own in layers] + [profile.forward_s]
    ready_s = [own[0].ready_s for own in layers] + [profile.forward_s]
    return torch.nn.Sequential(
        *(
            Layer(
                [each.shape for each in own], needed_s[at + 1] - needed_s[at], ready_s[at] - ready_s[at + 1]
            )
            for at, own in enumerate(layers)
        )
    )


class Trained:
    """Contender in training. `period`: iterations after which all is as before; `filled`: those after which as much is under way as
    later on."""

    def __init__(self, variant: Ddp | Planned | Never, profile: Profile) -> None:
        """Begin; all ranks do at once."""
        model = model_of(profile)
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        self.period = self.filled = 1
        self.flush: Callable[[], None] = lambda: None
        self.model: torch.nn.Module = model
        if isinstance(variant, Never):
            return
        if isinstance(variant, Planned):
            schedule = variant.plan.schedule
            self.period = schedule.period
            # A turn of steps alone takes long, and all of its exchange falls into any period after the first ones were due.
            self.filled = schedule.delay_max + 1 if schedule.steps == "local" else schedule.period
            # Without the sentinel's synchronous window, which would count as the plan's.
            settings = dataclasses.replace(Settings.from_environment(), sentinel=False)
            model, self.optimizer = hk.distribute(model, self.optimizer, plan=variant.plan, settings=settings)
            self.model = model
            self.flush = lambda: hk.flush(model)
            return
        parallel = DistributedDataParallel(
            model, bucket_cap_mb=variant.bucket_mb, gradient_as_bucket_view=not variant.f16
        )
        if variant.f16:
            parallel.register_comm_hook(None, default_hooks.fp16_compress_hook)
        self.model = parallel

    def touch(self) -> None:
        """Run an iteration and exchange it, so that all memory of that is there."""
        self._iterate(torch.zeros(1, requires_grad=True))
        self.flush()

    def iterations_s(self, warm_up: int, count: int) -> float:
        """Mean seconds of an iteration, over whole periods of at least `count` iterations, after `warm_up` iterations."""
        return self.measured(warm_up, count)[0]

    def measured(self, warm_up: int, count: int) -> tuple[float, tuple[float, float]]:
        """Return what `iterations_s` does, and when these began and ended, by the machine's clock."""
        count = math.ceil(count / self.period) * self.period
        x = torch.zeros(1, requires_grad=True)
        dist.barrier()
        began_s = 0.0
        for at in range(warm_up + count):
            if at == warm_up:
                began_s = time.monotonic()
            self._iterate(x)
        ended_s = time.monotonic()
        self.flush()
        return (ended_s - began_s) / count, (began_s, ended_s)

    def _iterate(self, x: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.model(x).sum().backward()
        self.optimizer.step()


def main() -> None:
    """Train; rank 0 writes the measurements of each contender."""
    folder, out = Path(sys.argv[1]), Path(sys.argv[3])
    torch.set_num_threads(1)
    profile = files.read(folder / "profile.json", Profile)
    contenders = msgspec.json.decode((folder / "contenders.json").read_bytes(), type=list[Contender])
    course = msgspec.json.decode((folder / "course.json").read_bytes(), type=Course)
    dist.init_process_group("gloo")
    trained, chosen = [], []
    for each in contenders:
        variants = [Trained(variant, profile) for variant in each.variants]
        fastest = 0
        if len(variants) > 1:
            taken_s = [variant.iterations_s(course.tuning, course.tuning) for variant in variants]
            fastest = _agreed(min(range(len(variants)), key=taken_s.__getitem__))
        chosen.append(fastest)
        trained.append(variants[fastest])
    for own in trained:
        own.touch()
    found: list[list[tuple[float, tuple[float, float]]]] = [[] for _ in trained]
    for _ in range(course.turns):
        for turns, own in zip(found, trained, strict=True):
            turns.append(own.measured(max(course.warm_up, own.filled), course.iterations))
    if os.environ["HOCKET_RANK"] == "0":
        measured = [
            Measured(
                variant=variant,
                iterations_s=tuple(own_s for own_s, _ in turns),
                spans_s=tuple(span_s for _, span_s in turns),
            )
            for variant, turns in zip(chosen, found, strict=True)
        ]
        out.write_bytes(msgspec.json.encode(measured))
    dist.destroy_process_group()


def _agreed(value: int) -> int:
    """Rank 0's value."""
    given = torch.tensor(value)
    dist.broadcast(given, 0)
    return int(given)


if __name__ == "__main__":
    main()
