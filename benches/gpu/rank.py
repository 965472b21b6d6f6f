"""Rank of the benchmark: the time from the begin of a backward until its means are on the device, by contender."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist

import hocket.torch as hk

LAYERS, TURNS, STEPS, WARM = 8, 5, 6, 2
DEVICE = torch.accelerator.current_accelerator() or torch.device("cpu")


class Layers(torch.nn.Module):
    """Gradients of `size_bytes` that cost next to nothing to make."""

    def __init__(self, size_bytes: int, device: torch.device) -> None:
        super().__init__()
        count = size_bytes // 4 // LAYERS
        self.layers = torch.nn.ParameterList(torch.zeros(count, device=device) for _ in range(LAYERS))

    def forward(self) -> torch.Tensor:
        return sum((each.sum() for each in self.layers), torch.zeros((), device=self.layers[0].device))


def _contenders(size_bytes: int) -> dict[str, Any]:
    def ours(device: torch.device) -> torch.nn.Module:
        model = Layers(size_bytes, device)
        return hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.01), buffers="none")[0]

    theirs = torch.nn.parallel.DistributedDataParallel(
        Layers(size_bytes, DEVICE), gradient_as_bucket_view=True
    )
    return {"hocket": ours(DEVICE), "gloo": theirs, "hocket on the processor": ours(torch.device("cpu"))}


def _timed(model: torch.nn.Module) -> tuple[float, float]:
    """Return the time of a step until its means are there, and that for which the script waits in `backward`."""
    for each in model.parameters():
        each.grad = None
    loss = model()
    torch.accelerator.synchronize()
    began = time.perf_counter()
    loss.backward()
    returned = time.perf_counter()
    torch.accelerator.synchronize()
    return time.perf_counter() - began, returned - began


def measure(size_bytes: int) -> dict[str, dict[str, float]]:
    """Return by contender the medians, in ms, and the spread of the turns."""
    models = _contenders(size_bytes)
    times: dict[str, list[list[tuple[float, float]]]] = {name: [] for name in models}
    for _ in range(TURNS):
        for name, model in models.items():
            dist.barrier()
            times[name].append([_timed(model) for _ in range(STEPS)][WARM:])

    def pick(at: int, name: str) -> list[float]:
        return [1e3 * median(each[at] for each in turn) for turn in times[name]]

    return {
        name: {
            "ms": round(median(pick(0, name)), 2),
            "least_ms": round(min(pick(0, name)), 2),
            "most_ms": round(max(pick(0, name)), 2),
            "backward_ms": round(median(pick(1, name)), 2),
        }
        for name in models
    }


def main() -> None:
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{os.environ['GLOO_PORT']}"
    rank, world = int(os.environ["HOCKET_RANK"]), int(os.environ["HOCKET_WORLD"])
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    found = {f"{size} MB": measure(size << 20) for size in (25, 100)}
    if rank == 0:
        Path(sys.argv[1]).write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
