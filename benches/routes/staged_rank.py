"""A rank of `benches.routes.staged`: seconds of steps with gradients on a device, and in the host's memory, in turns.

`python -m benches.routes.staged_rank hostile|vulkan|accelerator --out FILE`. Rank 0 writes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from pathlib import Path
from typing import Any

import msgspec
import torch

import hocket.torch as hk
from hocket.torch import bus

SIZE_BYTES = 25 << 20
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

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        count = SIZE_BYTES // 4 // LAYERS
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


def timed(model: torch.nn.Module, device: torch.device) -> float:
    """Return the time from backward's begin until means are there."""
    for each in model.parameters():
        if each.grad is not None:
            each.grad.zero_()
    loss = model()
    waited(device)
    began = time.perf_counter()
    loss.backward()
    waited(device)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("hostile", "vulkan", "accelerator"))
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    devices = {"device": device_of(given.kind), "processor": torch.device("cpu")}
    models = {}
    for place, device in devices.items():
        model = Layers(device)
        models[place] = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01), buffers="none")[0]
    # A model that nobody distributes: what making gradients takes.
    models["alone"], devices["alone"] = Layers(devices["device"]), devices["device"]
    found: dict[str, list[float]] = {place: [] for place in devices}
    for turn in range(TURNS):
        for place, model in models.items():
            steps_s = [timed(model, devices[place]) for _ in range(STEPS)]
            # The first steps load programs, and compile what the device runs.
            found[place] += steps_s if turn else []
    own = bus.measured(devices["device"])
    if hk.rank(models["device"]) == 0:
        given.out.write_text(json.dumps({**found, "bus": msgspec.to_builtins(own)}))


if __name__ == "__main__":
    main()
