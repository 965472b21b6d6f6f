"""A rank of `benches.routes.staged`: seconds of steps with gradients on a device, and in the host's memory, in turns.

`python -m benches.routes.staged_rank hostile|vulkan|accelerator [--gloo FILE] --out FILE`. Rank 0 writes. With a file for its
store, Gloo has turns, too: of gradients in the host's memory, and of a device's, which are copied there and back.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch.distributed import FileStore  # type: ignore[attr-defined]

import hocket.torch as hk
from hocket.torch import bus

LAYERS, TURNS, STEPS = 8, 5, 4


class Kept(torch.autograd.Function):
    """Function whose gradient is there already."""

    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        ctx.kept = kept
        return weight[0]

    @staticmethod
    def backward(ctx: Any, *_: Any) -> Any:
        return ctx.kept, None


class Layers(torch.nn.Module):
    """Gradients that cost as little as adding them up."""

    def __init__(self, size_bytes: int, device: torch.device) -> None:
        super().__init__()
        count = size_bytes // 4 // LAYERS
        self.layers = torch.nn.ParameterList(torch.zeros(count, device=device) for _ in range(LAYERS))
        self.kept = torch.ones(count, device=device)

    def forward(self) -> torch.Tensor:
        return torch.stack([Kept.apply(each, self.kept) for each in self.layers]).sum()


def device_of(kind: str) -> torch.device:
    if kind == "hostile":
        # Work begins as soon as it may: this measures copies, and looks for no order that is forgotten.
        importlib.import_module("tests.torch.hostile").loaded(mood="first")
        return torch.device("hostile", 0)
    if kind == "vulkan":
        importlib.import_module("torchvulkan")
        return torch.device("vulkan")
    found = torch.accelerator.current_accelerator()
    if found is None:
        raise SystemExit("there is no accelerator\nhint: run it on a machine that has one")
    return found


def waited(device: torch.device) -> None:
    """Return when the device has done all of its work."""
    if device.type != "cpu":
        getattr(torch.get_device_module(device), "synchronize", lambda: None)()


def by_gloo(model: torch.nn.Module, world: int) -> Callable[[], None]:
    """Return a call that makes gradients means: of a device's, by a copy to the host's memory and one back."""
    host = torch.zeros(sum(each.numel() for each in model.parameters()))

    def call() -> None:
        grads = [each.grad for each in model.parameters() if each.grad is not None]
        parts = host.split([grad.numel() for grad in grads])
        for part, grad in zip(parts, grads, strict=True):
            part.copy_(grad)
        dist.all_reduce(host)
        host.div_(world)
        for part, grad in zip(parts, grads, strict=True):
            grad.copy_(part)

    return call


def timed(model: torch.nn.Module, device: torch.device, then: Callable[[], None]) -> float:
    """Return the time from backward's begin until means are there. `then`: what makes means after backward."""
    for each in model.parameters():
        if each.grad is not None:
            each.grad.zero_()
    loss = model()
    waited(device)
    began = time.perf_counter()
    loss.backward()
    then()
    waited(device)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("hostile", "vulkan", "accelerator"))
    parser.add_argument("--bytes", type=int, required=True)
    parser.add_argument("--gloo", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    devices = {"device": device_of(given.kind), "processor": torch.device("cpu")}
    models = {}
    for place, device in devices.items():
        model = Layers(given.bytes, device)
        models[place] = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01), buffers="none")[0]
    # A model that nobody distributes: what making gradients takes.
    models["alone"], devices["alone"] = Layers(given.bytes, devices["device"]), devices["device"]
    after: dict[str, Callable[[], None]] = {}
    if given.gloo is not None:
        world, rank = int(os.environ["HOCKET_WORLD"]), int(os.environ["HOCKET_RANK"])
        dist.init_process_group("gloo", store=FileStore(str(given.gloo), world), rank=rank, world_size=world)
        for place in ("device", "processor"):
            name = f"gloo {place}"
            models[name], devices[name] = Layers(given.bytes, devices[place]), devices[place]
            after[name] = by_gloo(models[name], world)
    found: dict[str, list[float]] = {place: [] for place in devices}
    for turn in range(TURNS):
        for place, model in models.items():
            steps_s = [timed(model, devices[place], after.get(place, lambda: None)) for _ in range(STEPS)]
            # The first steps load programs, and compile what the device runs.
            found[place] += steps_s if turn else []
    own = bus.measured(devices["device"])
    if hk.rank(models["device"]) == 0:
        given.out.write_text(json.dumps({**found, "bus": msgspec.to_builtins(own)}))
    if given.gloo is not None:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
