"""What ranks of `test_syncs.py` do: they decide which backward communicates, in DDP's ways."""

import contextlib
import os

import torch
import torch.distributed as dist
from torch import nn

import hocket.torch as hk
from tests.torch.order_scripts import Ordered

RANK = int(os.environ.get("HOCKET_RANK", "0"))
WORLD = int(os.environ.get("HOCKET_WORLD", "1"))


def _started(kind, model):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    if kind == "ddp":
        if not dist.is_initialized():
            address = f"tcp://127.0.0.1:{os.environ['GLOO_PORT']}"
            dist.init_process_group("gloo", init_method=address, rank=RANK, world_size=WORLD)
        return nn.parallel.DistributedDataParallel(model), optimizer
    return hk.distribute(model, optimizer)


@contextlib.contextmanager
def _muted(model):
    model.require_backward_grad_sync = False
    try:
        yield
    finally:
        model.require_backward_grad_sync = True


def accumulated(kind, how):
    """Three micro-batches a step; `how` says what of the first two is without communication."""
    torch.manual_seed(RANK)
    model, optimizer = _started(kind, nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2)))
    generator = torch.Generator().manual_seed(100 + RANK)
    syncs = []
    for _ in range(3):
        for micro in range(3):
            quiet = _muted if how.startswith("attribute") else lambda model: model.no_sync()
            without = quiet(model) if micro < 2 or how.endswith("always") else contextlib.nullcontext()
            x = torch.randn(5, 6, generator=generator)
            if "only backward" in how:
                loss = model(x).square().mean()
                with without:
                    loss.backward()
            elif "only forward" in how:
                with without:
                    loss = model(x).square().mean()
                loss.backward()
            else:
                with without:
                    model(x).square().mean().backward()
            # Equal on all ranks: it was communicated.
            gradient = next(model.parameters()).grad.double().sum().item()
            syncs.append(gradient)
        optimizer.step()
        optimizer.zero_grad()
    return [[each.detach().double().flatten().tolist() for each in model.parameters()], syncs]


def parts():
    """Forwards of parts, which nobody hears of: the backward decides."""
    torch.manual_seed(RANK)
    model, _ = _started("hocket", nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 2)))
    generator = torch.Generator().manual_seed(100 + RANK)
    found = []
    for quiet in (True, False, True):
        with model.no_sync() if quiet else contextlib.nullcontext():
            model[1](model[0](torch.randn(5, 6, generator=generator))).square().mean().backward()
        found.append(model[0].weight.grad.double().sum().item())
        if not quiet:
            model.zero_grad()
    return found


def batch_norm(when):
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4))
    if when == "before":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model, _ = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    nn.SyncBatchNorm.convert_sync_batchnorm(model)
    model(torch.randn(5, 6)).square().mean().backward()


def compiled():
    """Whole graphs stay whole; parameters that were replaced are noticed all the same."""
    torch.manual_seed(RANK)
    model = nn.Sequential(nn.Linear(6, 8), nn.Linear(8, 2))
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    fast = torch.compile(model, fullgraph=True, backend="aot_eager")
    generator = torch.Generator().manual_seed(100 + RANK)
    for _ in range(3):
        fast(torch.randn(5, 6, generator=generator)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return [each.detach().double().flatten().tolist() for each in model.parameters()]


def frozen_at_an_epoch():
    """A layer is frozen when other buckets begin, and thawed afterwards."""
    torch.manual_seed(RANK)
    model = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])

    def forward(x):
        for each in (model[2], model[0], model[1]):
            x = each(x).tanh()
        return x.square().mean()

    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), policy=Ordered())
    generator = torch.Generator().manual_seed(100 + RANK)
    for step in range(6):
        model[0].requires_grad_(step in (0, 4, 5))
        forward(torch.randn(5, 6, generator=generator)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return [
        hk.agreed(model)["epoch"],
        [each.detach().double().flatten().tolist() for each in model.parameters()],
    ]
