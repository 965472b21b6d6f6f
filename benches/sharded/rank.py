"""A rank of `python -m benches sharded`: a transformer that FSDP2 shards inside hosts, with PyTorch or Hocket between them."""

from __future__ import annotations

import argparse
import json
import os
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import hocket.torch as hk

WIDTH, LAYERS, BATCH, LENGTH = 256, 4, 2, 16
"""3.2 million parameters, and little to compute: the network is what is measured."""
STEPS, FIRST = 10, 3
"""Number of steps, and the first that counts."""


class Transformer(nn.Module):
    """Blocks, each of which is a unit."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0, batch_first=True)
        self.blocks = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.blocks(x))
        return found


def main() -> None:
    """Train; rank 0 writes the median time of a step, and the number of parameters."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--between", choices=("native", "exact", "rounded"), required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, local = dist.get_rank(), int(os.environ["LOCAL_WORLD_SIZE"])
    mesh = init_device_mesh(
        "cpu", (dist.get_world_size() // local, local), mesh_dim_names=("replicate", "shard")
    )
    native = arguments.between == "native"
    torch.manual_seed(0)
    model = Transformer()
    for block in model.blocks.layers:
        fully_shard(block, mesh=mesh if native else mesh["shard"])
    fully_shard(model, mesh=mesh if native else mesh["shard"])
    if not native:
        hk.hsdp_hook(model, promise=arguments.between)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    torch.manual_seed(rank)
    ended_s = [time.monotonic()]
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(torch.randn(BATCH, LENGTH, WIDTH)).square().mean().backward()
        optimizer.step()
        ended_s.append(time.monotonic())
    if rank == 0:
        step_s = median(after - before for before, after in pairwise(ended_s[FIRST:]))
        size = sum(each.numel() for each in model.parameters())
        arguments.out.write_text(json.dumps({"step_s": step_s, "parameters": size}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
