"""Train a recurrent network on the bytes of any file, with gradient accumulation and clipping as usual.

    hocket run -n 2 examples/train_bytes.py README.md
    hocket profile -n 2 examples/train_bytes.py -o profile.json    # what a step looks like to the network

Only the import and the line with `distribute` are for Hocket; `no_sync` is DDP's, too.
"""

import contextlib
import sys
from pathlib import Path

import torch
from torch import nn

import hocket.torch as hk

STEPS, BATCH, LENGTH, ACCUMULATED = 60, 16, 64, 2


class Bytes(nn.Module):
    """The next byte from those before it."""

    def __init__(self) -> None:
        """0.5 million parameters."""
        super().__init__()
        self.embed = nn.Embedding(256, 64)
        self.memory = nn.GRU(64, 256, batch_first=True)
        self.guess = nn.Linear(256, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """(batch, time) to (batch, time, 256)."""
        return self.guess(self.memory(self.embed(text))[0])


file = Path(sys.argv[1] if len(sys.argv) > 1 else __file__)
text = torch.tensor(list(file.read_bytes()))
if len(text) <= LENGTH:
    sys.exit(f"{file} has {len(text)} bytes: at least {LENGTH + 1} are needed")

model = Bytes()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
model, optimizer = hk.distribute(model, optimizer)

torch.manual_seed(hk.rank(model))
for step in range(STEPS):
    optimizer.zero_grad()
    for part in range(ACCUMULATED):
        starts = torch.randint(len(text) - LENGTH, (BATCH,))
        windows = torch.stack([text[start : start + LENGTH + 1] for start in starts])
        last = part == ACCUMULATED - 1
        with contextlib.nullcontext() if last else model.no_sync():
            loss = nn.functional.cross_entropy(model(windows[:, :-1]).mT, windows[:, 1:])
            (loss / ACCUMULATED).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if step % 20 == 19 and hk.rank(model) == 0:
        print(f"step {step + 1}: loss {loss.item():.3f}")
