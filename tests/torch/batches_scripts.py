"""Ranks of `test_same_batches.py`, which draw their batches in one way or another."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import hocket.torch as hk
from tests.torch.drift_scripts import RANK, WORLD, network, plan

STEPS = 6
DATA = TensorDataset(torch.randn(96, 5, generator=torch.Generator().manual_seed(1)))


def loader(seed: int) -> Iterator[torch.Tensor]:
    shuffled = DataLoader(DATA, batch_size=4, shuffle=True, generator=torch.Generator().manual_seed(seed))
    return (x for (x,) in shuffled)


def losses(how: str, model: torch.nn.Module) -> Iterator[torch.Tensor]:
    def of(batches: Iterator[torch.Tensor]) -> Iterator[torch.Tensor]:
        return (model(x).square().sum() for x in batches)

    match how:
        case "one seed":
            yield from of(loader(7))
        case "seeds of two":
            yield from of(loader(7 + RANK % 2))
        case "seeds of all":
            yield from of(loader(7 + RANK))
        case "hk.batches":
            yield from of(x for (x,) in hk.batches(model, DATA, 4))
        case "a sampler":
            sampler = DistributedSampler(DATA, num_replicas=WORLD, rank=RANK)
            yield from of(x for (x,) in DataLoader(DATA, batch_size=4, sampler=sampler))
        case "the first batch alone":
            yield next(of(loader(7)))
            yield from of(loader(7 + RANK))
        case "nothing in the first step":
            yield next(of(loader(7))) * 0
            yield from of(loader(7 + RANK))
        case "not finite at first":
            yield next(of(loader(7))) * torch.inf
            yield next(of(loader(7))) * torch.inf
            yield from of(loader(7 + RANK))
        case "nothing, then one seed":
            yield next(of(loader(7))) * 0
            yield from of(loader(7))
        case _:
            yield from of(loader(7 if how.startswith("one seed") else 7 + RANK))


def train(how: str, kind: str = "plain") -> list[str]:
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("hocket.training").addHandler(handler)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    local = hk.Local(every=2) if kind == "local" else None
    hk.distribute(model, optimizer, local=local, plan=plan(kind))
    for _, loss in zip(range(STEPS * (2 if kind == "local" else 1)), losses(how, model), strict=False):
        loss.backward()
        if torch.isfinite(loss):
            optimizer.step()
        optimizer.zero_grad()
    logging.getLogger("hocket.training").removeHandler(handler)
    return [each for each in said if "batches" in each]
