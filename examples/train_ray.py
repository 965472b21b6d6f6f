"""Training on a Ray cluster: `python examples/train_ray.py 4` on 4 workers of RAY_ADDRESS's cluster, or of this machine's own.

Workers are actors of Ray, each a rank. The function is an ordinary training loop; the same one runs under Hocket's own launcher:
`hocket run -n 4 examples/train_ray.py`. Needs, in a clone: pip install '.[torch,ray]'.
"""

import hashlib
import os
import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

import hocket.ray as hr
import hocket.torch as hk

CONFIG = {"steps": 60, "lr": 3e-3, "batch": 32}
WORKERS = 2


def train(config):
    """Some layers that learn a sine."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 64))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    first = 0
    if (resumed := hr.get_checkpoint()) is not None:
        state = torch.load(resumed.path / "state.pt", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    model, optimizer = hk.distribute(model, optimizer)

    rank = hk.rank(model)
    for step in range(first, config["steps"]):
        draw = torch.Generator().manual_seed(1000 * step + rank)  # each rank draws its own batches
        x = torch.randn(config["batch"], 64, generator=draw)
        loss = nn.functional.mse_loss(model(x), torch.sin(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 19:
            report(step + 1, loss.item(), model, optimizer, rank)


def report(step, loss, model, optimizer, rank):
    """All ranks report; the checkpoint is rank 0's."""
    bits = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    metrics = {"step": step, "loss": loss, "parameters": hashlib.sha256(bits).hexdigest()}
    if rank > 0:
        hr.report(metrics)
        return
    with tempfile.TemporaryDirectory() as directory:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, Path(directory, "state.pt"))
        hr.report(metrics, checkpoint=hr.Checkpoint.from_directory(directory))
    print(metrics)


if __name__ == "__main__":
    if "HOCKET_RANK" in os.environ:
        train(CONFIG)
    else:
        workers = int(sys.argv[1]) if len(sys.argv) > 1 else WORKERS
        trainer = hr.Trainer(train, CONFIG, scaling_config=hr.ScalingConfig(num_workers=workers))
        result = trainer.fit()
        print(f"{result.metrics}; checkpoint: {result.checkpoint.path}")
