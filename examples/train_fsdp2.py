"""Train a transformer on the bytes of a file: FSDP2 shards it over the ranks of a host, Hocket averages shards between hosts.

    hocket run --hosts hosts.txt examples/train_fsdp2.py README.md
    hocket run -n 4 examples/train_fsdp2.py README.md 2               # on one machine, as if it were hosts of two ranks

Only the last import and the line with `hsdp_hook` are for Hocket. Native HSDP has the whole mesh in `fully_shard` in its place.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import hocket.torch as hk

STEPS, BATCH, LENGTH, WIDTH = 60, 16, 64, 64


class Bytes(nn.Module):
    """The next byte from those before it."""

    def __init__(self) -> None:
        """0.2 million parameters."""
        super().__init__()
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0, batch_first=True)
        self.embed = nn.Embedding(256, WIDTH)
        self.blocks = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.guess = nn.Linear(WIDTH, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """(batch, time) to (batch, time, 256)."""
        mask = nn.Transformer.generate_square_subsequent_mask(text.shape[1])
        return self.guess(self.blocks(self.embed(text), mask, is_causal=True))


file = Path(sys.argv[1] if len(sys.argv) > 1 else __file__)
text = torch.tensor(list(file.read_bytes()))
if len(text) <= LENGTH:
    sys.exit(f"{file} has {len(text)} bytes: at least {LENGTH + 1} are needed")

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
of_a_host = int(sys.argv[2] if len(sys.argv) > 2 else os.environ["LOCAL_WORLD_SIZE"])
mesh = init_device_mesh("cpu", (world // of_a_host, of_a_host), mesh_dim_names=("replicate", "shard"))

torch.manual_seed(0)  # the same model on all ranks
model = Bytes()
for block in model.blocks.layers:
    fully_shard(block, mesh=mesh["shard"])
fully_shard(model, mesh=mesh["shard"])
hk.hsdp_hook(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

torch.manual_seed(rank)  # other samples on each
for step in range(STEPS):
    starts = torch.randint(len(text) - LENGTH, (BATCH,))
    windows = torch.stack([text[start : start + LENGTH + 1] for start in starts])
    loss = nn.functional.cross_entropy(model(windows[:, :-1]).mT, windows[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 20 == 19 and rank == 0:
        print(f"step {step + 1}: loss {loss.item():.3f}")
dist.destroy_process_group()
