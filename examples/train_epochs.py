"""Train on scikit-learn's digits by epochs: each sample once, on any number of ranks, from a checkpoint if there is one.

    python examples/train_epochs.py                                   # alone
    hocket run -n 4 examples/train_epochs.py                          # the same data, shared by four ranks
    hocket run -n 2 examples/train_epochs.py --checkpoints out        # stop it at any time, and
    hocket run -n 3 examples/train_epochs.py --checkpoints out        # go on from there, also with another number

Lines that make that possible begin with `hk`, or have it in their loop. Needs, in a clone: pip install '.[demo]'.
"""

import argparse
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

import hocket.torch as hk

parser = argparse.ArgumentParser()
parser.add_argument("--checkpoints", type=Path)
parser.add_argument("--epochs", type=int, default=5)
options = parser.parse_args()

torch.manual_seed(0)
digits = load_digits()
images = torch.tensor(digits.images, dtype=torch.float32).div(16)
labels = torch.tensor(digits.target)
data = torch.utils.data.TensorDataset(images[:1500], labels[:1500])

model = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer = hk.distribute(model, optimizer)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.5)

hk.on_change(model, lambda change: hk.rank(model) == 0 and print(f"{change.why}: {change.new_world} ranks"))
hk.scale_lr(model, "sqrt", world=1, warmup=20)  # 1e-3 was chosen for one rank
hk.extra_state(model, "schedule", schedule.state_dict, schedule.load_state_dict)  # goes with the checkpoint

checkpoint = options.checkpoints / "newest.pt" if options.checkpoints else None
if checkpoint is not None and checkpoint.exists():
    saved = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    hk.load_state_dict(model, saved["hocket"])


def save() -> None:
    """All ranks call it; here all have the same state, so one writes it. A policy with residuals needs a file of each rank."""
    own = {
        "model": model.state_dict(),
        "optimizer": hk.optimizer_state(model),
        "hocket": hk.state_dict(model),
    }
    if checkpoint is not None and hk.rank(model) == 0:
        checkpoint.parent.mkdir(exist_ok=True)
        torch.save(own, checkpoint.with_suffix(".new"))
        checkpoint.with_suffix(".new").replace(checkpoint)


for epoch in hk.epochs(model, options.epochs):  # from where the job was
    batches = hk.batches(model, data, 32)  # this rank's part of what is left of the epoch
    for image, label in batches:
        loss = nn.functional.cross_entropy(model(image), label)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if (
            len(batches) % 10 == 0
        ):  # the same on all ranks, also on those that joined in the middle of the epoch
            save()
    schedule.step()
    save()
    if hk.rank(model) == 0:
        with torch.no_grad():
            right = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean()
        print(f"epoch {epoch}: accuracy {right.item():.3f}")
