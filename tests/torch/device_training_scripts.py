"""Trainings of ranks of `test_device_backend.py`: models with the backend and the hooks on the hostile device, and on the CPU."""

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import hocket.torch as hk
from hocket.policies import Int8, LibraryInside, PartialF16
from hocket.policy.policy import Policy
from hocket.torch import devices
from hocket.training.memory import device as memory
from tests.torch import hostile
from tests.torch.device_scripts import MOODS, RANK, WORLD, device, group
from tests.torch.hostile import library


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(13, 61), nn.Tanh(), nn.Linear(61, 13)) for _ in range(3)
        )
        self.head = nn.Linear(13, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.head(x)


def cpu(_store: str) -> float:
    """Calls, in a step of a model on the CPU, of code that is there for devices."""
    model, optimizer = hk.distribute(net := Network(), torch.optim.SGD(net.parameters(), lr=0.1))
    draw = torch.Generator().manual_seed(RANK)
    counted, steps = 0, 20

    def count(frame: Any, event: str, _of: Any) -> None:
        nonlocal counted
        counted += event == "call" and frame.f_code.co_filename in {memory.__file__, devices.__file__}

    for step in range(2 * steps):
        if step == steps:
            sys.setprofile(count)
        optimizer.zero_grad()
        model(torch.randn(6, 13, generator=draw)).square().mean().backward()
        optimizer.step()
    sys.setprofile(None)
    return counted / steps


def ddp(hook: Callable[[], Any] | None) -> Callable[[nn.Module, str], nn.Module]:
    def wrapped(model: nn.Module, _kind: str) -> nn.Module:
        made = DistributedDataParallel(model, bucket_cap_mb=0.005)
        if hook is not None:
            made.register_comm_hook(None, hook())
        return made

    return wrapped


def sharded(model: nn.Module, kind: str) -> nn.Module:
    mesh = init_device_mesh(kind, (WORLD,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def replicated(model: nn.Module, kind: str) -> nn.Module:
    mesh = init_device_mesh(kind, (WORLD // 2, 2), mesh_dim_names=("replicate", "shard"))["shard"]
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    hk.hsdp_hook(fully_shard(model, mesh=mesh))
    return model


LIBRARY = "DDP with the device's library inside hosts"
WAYS = {
    "DDP": ddp(None),
    "DDP with a policy": ddp(lambda: hk.ddp_hook(Policy())),
    "DDP with a codec": ddp(lambda: hk.ddp_hook(PartialF16())),
    "DDP with residuals": ddp(lambda: hk.ddp_hook(Int8())),
    LIBRARY: ddp(lambda: hk.ddp_hook(LibraryInside())),
    "FSDP2": sharded,
    "FSDP2 among hosts": replicated,
}


def trained(store: str, way: str) -> list[str]:
    """Moods in which a model ends with other bits than on the CPU."""
    wrong = []
    hostile.loaded(RANK)
    torch.accelerator.set_device_index(device())
    if way == LIBRARY:
        library.register()
    with group(store, hosts=2):
        for mood in MOODS:
            hostile.loaded(RANK, mood)
            ends = []
            for where in (torch.device("cpu"), device()):
                model = WAYS[way](Network().to(where), where.type)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
                for step in range(4):
                    draw = torch.Generator().manual_seed(100 * step + RANK)
                    optimizer.zero_grad()
                    model(torch.randn(6, 13, generator=draw).to(where)).square().mean().backward()
                    optimizer.step()
                whole = [
                    each.full_tensor() if hasattr(each, "full_tensor") else each
                    for each in model.parameters()
                ]
                ends.append(torch.cat([each.detach().cpu().flatten() for each in whole]))
            if not torch.equal(*ends):
                wrong.append(f"{mood}: {float((ends[0] - ends[1]).abs().max())}")
    return wrong
