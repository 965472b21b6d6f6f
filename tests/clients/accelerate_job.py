"""A user's script for Accelerate under torchrun, `accelerate_job.py WAY WORLD OUT`.

Digits by a loop of one's own, with accumulation, clipping and gathered metrics. The lines that choose Hocket are those that the
documentation names. Each rank writes its losses and parameters to OUT.
"""

import os
import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from sklearn.datasets import load_digits
from torch.utils.data import DataLoader, TensorDataset

import hocket.torch as hk


def network():
    layers = torch.nn
    return layers.Sequential(
        layers.Unflatten(1, (1, 8, 8)),
        layers.Conv2d(1, 12, 3),
        layers.ReLU(),
        layers.Flatten(),
        layers.Linear(432, 10),
    )


def main():
    way, _, out = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    if way == "backend":
        torch.distributed.init_process_group("hocket")
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    if way == "distribute":
        hk.accelerate(accelerator)
    set_seed(7)
    digits = load_digits()
    data = TensorDataset(torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target))
    train, held = torch.utils.data.random_split(data, (1500, len(data) - 1500))
    model = network()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)
    model, optimizer, loader, held, schedule = accelerator.prepare(
        model, optimizer, DataLoader(train, 32, shuffle=True), DataLoader(held, 32), schedule
    )
    losses = []
    for _ in range(2):
        for samples, labels in loader:
            with accelerator.accumulate(model):
                loss = torch.nn.functional.cross_entropy(model(samples), labels)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    losses.append(accelerator.clip_grad_norm_(model.parameters(), 1.0).item())
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            losses.append(accelerator.reduce(loss.detach(), "mean").item())
    model.eval()
    right = count = 0
    for samples, labels in held:
        with torch.no_grad():
            answers, expected = accelerator.gather_for_metrics((model(samples).argmax(1), labels))
        right, count = right + int((answers == expected).sum()), count + len(expected)
    losses += [right, count]
    accelerator.wait_for_everyone()
    torch.save(
        {
            "used": [torch.distributed.get_backend(), type(model).__name__],
            "losses": losses,
            "state": accelerator.unwrap_model(model).state_dict(),
        },
        out / f"rank-{os.environ['RANK']}.pt",
    )
    accelerator.end_training()


if __name__ == "__main__":
    main()
