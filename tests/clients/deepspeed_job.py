"""A user's script for DeepSpeed's ZeRO-1 on the CPU under torchrun, `deepspeed_job.py BACKEND OUT`.

Digits by DeepSpeed's own loop. Each rank writes its losses and parameters to OUT.
"""

import sys
from pathlib import Path

import deepspeed
import torch
from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder
from sklearn.datasets import load_digits

import hocket.torch  # noqa: F401  # registers the backend

BATCH = 32
CONFIG = {
    "train_micro_batch_size_per_gpu": BATCH,
    "gradient_accumulation_steps": 2,
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 1},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "zero_force_ds_cpu_optimizer": False,
}

# DeepSpeed would compile its own reductions within a host, for minutes; training does not use them.
deepspeed.ops.__compatible_ops__[ShareMemCommBuilder.NAME] = False


def main():
    backend, out = sys.argv[1], Path(sys.argv[2])
    deepspeed.init_distributed(dist_backend=backend, verbose=False)
    rank = torch.distributed.get_rank()
    torch.manual_seed(7)
    layers = torch.nn
    model = layers.Sequential(layers.Linear(64, 48), layers.ReLU(), layers.Linear(48, 10))
    engine, optimizer, _, _ = deepspeed.initialize(model=model, config=CONFIG)
    found = load_digits()
    samples = torch.tensor(found.data / 16, dtype=torch.float32)
    targets = torch.tensor(found.target)
    own = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(16):
        batch = torch.randint(len(samples), (BATCH,), generator=own)
        loss = torch.nn.functional.cross_entropy(engine(samples[batch]), targets[batch])
        engine.backward(loss)
        engine.step()
        losses.append(loss.item())
    state = {name: each.detach().clone() for name, each in engine.module.named_parameters()}
    used = [torch.distributed.get_backend(), type(optimizer).__name__]
    torch.save({"losses": losses, "state": state, "used": used}, out / f"rank-{rank}.pt")
    torch.distributed.destroy_process_group()


main()
