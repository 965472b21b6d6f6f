"""One side of a comparison of gradients: a model on DDP or on Hocket, and notes of what a script sees of it."""

from __future__ import annotations

import os
from typing import Any

import msgspec
import torch
from torch import nn

import hocket.torch as hk
from hocket.artefacts.plan import Owned, Owner, Schedule
from hocket.planning.buckets import buckets, plan_of
from hocket.torch.framework import Torch
from hocket.training.memory.gradients import gradients_of


class Parts(nn.Module):
    """Parts that a loss uses or does not: rank 1 has other batches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Linear(4, 6)
        self.second = nn.Linear(6, 5)
        self.spare = nn.Linear(6, 5)
        self.never = nn.Parameter(torch.ones(3))

    def forward(self, x: torch.Tensor, part: str = "second") -> torch.Tensor:
        hidden = self.first(x).tanh()
        if part == "none":
            return x.sum().requires_grad_()
        return getattr(self, part)(hidden).square().mean()


def rank() -> int:
    return int(os.environ["HOCKET_RANK"])


def world() -> int:
    return int(os.environ["HOCKET_WORLD"])


class Side:
    """DDP or Hocket, with a barrier after backward, with gates, or with owners that update."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.seen: list[Any] = []
        self._draw = torch.Generator().manual_seed(100 + rank())

    def start(self, module: nn.Module, *optimizers: torch.optim.Optimizer) -> nn.Module:
        """The first of the optimizers is the one that Hocket knows."""
        self.module = module
        if self.kind == "ddp":
            return nn.parallel.DistributedDataParallel(module, find_unused_parameters=True)
        chosen = None if self.kind == "barrier" else plan(module, optimizers[0], self.kind)
        model, _ = hk.distribute(module, optimizers[0], plan=chosen)
        return model

    def batch(self) -> torch.Tensor:
        return torch.randn(8, 4, generator=self._draw)

    def look(self) -> None:
        """Which gradients there are, and with owners no more than that: no rank has all of one."""
        named = self.module.named_parameters()
        self.seen.append(
            {name: None if each.grad is None else self._plain(each.grad) for name, each in named}
        )

    def missing(self) -> None:
        """Which gradients there are not, around gates: looking at the model opens these."""
        self.seen.append([each.grad is None for _, each in nn.Module.named_parameters(self.module)])

    def values(self) -> None:
        self.seen.append({name: self._plain(each) for name, each in self.module.named_parameters()})

    def _plain(self, tensor: torch.Tensor) -> Any:
        if self.kind == "owners" and not isinstance(tensor, nn.Parameter):
            return []
        return tensor.detach().double().flatten().tolist()


def plan(module: nn.Module, optimizer: torch.optim.Optimizer, kind: str) -> Any:
    gradients = gradients_of(Torch(module, optimizer).parameters())
    layers: dict[str, list[Any]] = {}
    for name, each in gradients.items():
        layers.setdefault(name.split(".")[0], []).append(each)
    shares = Owned(
        owners=tuple(Owner(rank=each) for each in range(world())),
        update="owners" if kind == "owners" else "replicas",
    )
    made = plan_of(buckets(list(layers.values()), shares, range(world())), world(), label=kind)
    return msgspec.structs.replace(made, schedule=Schedule(overlap="gates" if kind == "gates" else "barrier"))


def adamw(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.3)


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1)
