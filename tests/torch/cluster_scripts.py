"""What ranks of `test_cluster.py` do: each plays a host of its own."""

import os

import torch
import torch.distributed as dist
from torch import nn

import hocket.torch as hk
from hocket.policies import PartialF16


def own_host() -> int:
    """Plays the host that has the number of this rank, which is returned."""
    rank = int(os.environ["HOCKET_RANK"])
    os.environ["HOCKET_HOST"] = f"h{rank}"
    return rank


def plain():
    rank = own_host()
    model = nn.Linear(300, 100)
    model, _ = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    model(torch.full((1, 300), float(rank))).sum().backward()
    return model.weight.grad[0, :2].tolist()


def hook():
    """Which share of the gradients that the hook reduces fits into f16."""
    rank, world = own_host(), int(os.environ["HOCKET_WORLD"])
    address = f"tcp://127.0.0.1:{os.environ['GLOO_PORT']}"
    dist.init_process_group("gloo", init_method=address, rank=rank, world_size=world)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
    model.register_comm_hook(None, hk.ddp_hook(PartialF16()))
    model(torch.randn(8, 64, generator=torch.Generator().manual_seed(rank))).square().sum().backward()
    gradient = model.module.weight.grad
    return float((gradient.half().float() == gradient).float().mean())
