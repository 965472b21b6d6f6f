"""Train a classifier of scikit-learn's digits with Accelerate, whose model `hk.distribute` trains.

    hocket run -n 4 examples/train_accelerate.py
    torchrun --nproc-per-node 4 examples/train_accelerate.py

Only the import of Hocket and the line with `hk.accelerate` are for Hocket.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

import hocket.torch as hk

EPOCHS = 3

accelerator = hk.accelerate(Accelerator(cpu=True, gradient_accumulation_steps=2))
set_seed(0)
digits = load_digits()
data = TensorDataset(torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target))
train, held = random_split(data, (1500, len(data) - 1500))
model = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
model, optimizer, batches, others = accelerator.prepare(
    model, optimizer, DataLoader(train, 16, shuffle=True), DataLoader(held, 64)
)

for epoch in range(EPOCHS):
    for samples, labels in batches:
        with accelerator.accumulate(model):
            accelerator.backward(nn.functional.cross_entropy(model(samples), labels))
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    right = 0
    for samples, labels in others:
        with torch.no_grad():
            answers, expected = accelerator.gather_for_metrics((model(samples).argmax(1), labels))
        right += int((answers == expected).sum())
    accelerator.print(f"epoch {epoch}: {right} of {len(held)} right")
accelerator.end_training()
