"""Train a small network on scikit-learn's digits, on one machine or on many.

    python examples/train_digits.py                                   # alone
    hocket run -n 4 examples/train_digits.py                          # four ranks on this machine
    torchrun --nproc-per-node 4 examples/train_digits.py              # the same, by another launcher
    hocket run --hosts hosts.txt examples/train_digits.py             # over ssh, a rank a slot
    hocket run -n 4 --trace trace examples/train_digits.py && hocket report trace   # and look at it

The two lines that make it parallel are marked. Needs, in a clone: pip install '.[demo]'.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import hocket.torch as hk  # 1

STEPS, BATCH = 200, 64

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).div(16)
labels = torch.tensor(digits.target)
train, held_out = slice(0, 1500), slice(1500, None)

model = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer = hk.distribute(model, optimizer)  # 2

torch.manual_seed(1 + hk.rank(model))  # each rank draws its own batches
for step in range(STEPS):
    batch = torch.randint(1500, (BATCH,))
    loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    hk.log(model, step=step, loss=loss.item())

if hk.rank(model) == 0:
    with torch.no_grad():
        right = (model(images[held_out]).argmax(1) == labels[held_out]).float().mean()
    print(f"{hk.world(model)} ranks, {STEPS} steps: loss {loss.item():.3f}, accuracy {right.item():.3f}")
