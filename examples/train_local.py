"""Train over a slow network: ranks step alone, and exchange how far they came once in 30 steps (local SGD, DiLoCo).

    hocket run -n 4 examples/train_local.py README.md
    hocket run --hosts hosts.txt examples/train_local.py README.md 60 # once in 60 steps

Only the import and the line with `distribute` are for Hocket. What `model.state_dict` returns is the anchor, which all ranks have
alike. Steps go on while an exchange is under way (`late=1`).
"""

import sys
from pathlib import Path

import torch
from torch import nn

import hocket.torch as hk

STEPS, BATCH, LENGTH = 240, 8, 64

file = Path(sys.argv[1] if len(sys.argv) > 1 else __file__)
every = int(sys.argv[2]) if len(sys.argv) > 2 else 30
text = torch.tensor(list(file.read_bytes()))


class Bytes(nn.Module):
    """The next byte from those before it."""

    def __init__(self) -> None:
        """0.1 million parameters."""
        super().__init__()
        self.embed = nn.Embedding(256, 32)
        self.memory = nn.GRU(32, 128, batch_first=True)
        self.guess = nn.Linear(128, 256)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        """(batch, time) to (batch, time, 256)."""
        return self.guess(self.memory(self.embed(text))[0])


torch.manual_seed(0)
model = Bytes()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
model, optimizer = hk.distribute(model, optimizer, local=hk.Local(every=every, late=1))

torch.manual_seed(hk.rank(model))  # each rank draws its own batches
for step in range(STEPS):
    starts = torch.randint(len(text) - LENGTH, (BATCH,))
    windows = torch.stack([text[start : start + LENGTH + 1] for start in starts])
    loss = nn.functional.cross_entropy(model(windows[:, :-1]).mT, windows[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hk.log(model, step=step, loss=loss.item())
    if step % 60 == 59 and hk.rank(model) == 0:
        print(f"step {step + 1}: loss {loss.item():.3f}")
hk.flush(model)  # the last steps, too
