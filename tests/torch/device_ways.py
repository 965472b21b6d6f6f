"""Ranks of `test_device_ways.py`: scripts of other tests, all of whose tensors are on the tests' device."""

from __future__ import annotations

import importlib
import os
from typing import Any

import torch
from torch import nn

import hocket.torch as hk
from benches.ddp.rank import rows_of
from hocket.artefacts.cluster import Cluster, Host, Rack
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.promise import promise_of
from hocket.planning.default import by_cluster, default_plan
from hocket.training.memory import device as memory
from tests.torch import hostile
from tests.torch.device_scripts import RANK, WORLD, device
from tests.torch.device_training_scripts import Network

LAYERS, WIDTH = 4, 80
STEPS_MAX = 600
RACKS = Cluster(
    hosts=tuple(Host(name=f"h{at}", rack="ab"[at % 2], bandwidth_bit_per_s=1e9) for at in range(4)),
    racks=tuple(Rack(name=name, uplink_bit_per_s=1e8) for name in "ab"),
)
"""Two racks, between whose hosts ranks alternate."""


def begin() -> None:
    hostile.loaded(RANK)
    torch.accelerator.set_device_index(device())
    memory.PIECE_BYTES = 64


def on(where: str, function: str, *arguments: str) -> Any:
    """Return what a script returns whose tensors are there, unless it says where."""
    begin()
    module, _, name = function.partition(":")
    script = getattr(importlib.import_module(module), name)
    torch.set_default_device("cpu" if where == "cpu" else device())
    try:
        return script(*arguments)
    finally:
        torch.set_default_device(None)


def as_ddp(*names: str) -> list[dict[str, Any]]:
    """Rows of these ways of `python -m benches ddp`."""
    begin()
    memory.PIECE_BYTES = 1 << 16
    if not torch.distributed.is_initialized():
        address = f"tcp://127.0.0.1:{os.environ['GLOO_PORT']}"
        torch.distributed.init_process_group("gloo", init_method=address, rank=RANK, world_size=WORLD)
    return rows_of(names, RANK, WORLD, device())


def made() -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, 1)).double()
    return model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def loss_of(model: nn.Module, draw: torch.Generator) -> torch.Tensor:
    where = next(model.parameters()).device
    batch = torch.randn(8, WIDTH, generator=draw, dtype=torch.float64, device="cpu")
    found: torch.Tensor = model(batch.to(where))
    return found.square().mean()


def racks() -> list[Any]:
    """Routes by which ranks in two racks train, and parameters then."""
    found: list[Any] = []
    for promised in ("exact", "rounded"):
        model = Network().double()
        gradients = [Gradient(name, tuple(each.shape), "f64") for name, each in model.named_parameters()]
        hosts = [each.name for each in RACKS.hosts]
        choice = by_cluster(gradients[::-1], hosts, RACKS, promise_of(promised))
        plan = default_plan(gradients[::-1], choice, buckets_min=3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        model, optimizer = hk.distribute(model, optimizer, plan=plan)
        draw = torch.Generator().manual_seed(RANK)
        for _ in range(3):
            optimizer.zero_grad()
            batch = torch.randn(6, 13, generator=draw, dtype=torch.float64, device="cpu")
            model(batch.to(model.head.weight.device)).square().mean().backward()
            optimizer.step()
        found += [plan.label, torch.cat([each.detach().flatten() for each in model.parameters()]).tolist()]
    return found


def drives_itself(epochs: str) -> list[Any]:
    """Train until so many other plans have been in force: how far parameters are from those of one process, and how many were."""
    os.environ["HOCKET_HOST"] = f"host-{RANK}"
    begin()
    memory.PIECE_BYTES = 1 << 14
    model = made()[0].to(device())
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    draw, steps, epoch = torch.Generator().manual_seed(RANK), 0, 0
    while steps < STEPS_MAX and epoch < int(epochs):
        optimizer.zero_grad()
        loss_of(model, draw).backward()
        optimizer.step()
        steps, epoch = steps + 1, hk.agreed(model)["epoch"]
    alone, stepped = made()
    draws = [torch.Generator().manual_seed(rank) for rank in range(WORLD)]
    for _ in range(steps):
        stepped.zero_grad()
        torch.stack([loss_of(alone, each) for each in draws]).mean().backward()
        stepped.step()
    pairs = zip(model.parameters(), alone.parameters(), strict=True)
    return [max(float((one.detach().cpu() - two.detach()).abs().max()) for one, two in pairs), epoch]
