"""What ranks of `test_users_tensors.py` do: models whose tensors are not the usual ones, and what users do with tensors."""

import copy
import io
import os
import warnings

import torch
import torch.distributed as dist
from torch import nn

import hocket.torch as hk
from hocket import Policy
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Owned, Owner
from hocket.planning.buckets import buckets, plan_of

RANK = int(os.environ.get("HOCKET_RANK", "0"))
WORLD = int(os.environ.get("HOCKET_WORLD", "1"))


class Spectral(nn.Module):
    """As Fourier operators have it: complex weights, beside real ones."""

    def __init__(self):
        super().__init__()
        self.before = nn.Linear(6, 8)
        self.weight = nn.Parameter(torch.randn(5, 3, dtype=torch.complex64))
        self.scale = nn.Parameter(torch.randn((), dtype=torch.complex128))
        self.after = nn.Linear(4, 2)

    def forward(self, x):
        spectrum = torch.fft.rfft(self.before(x)) @ self.weight * self.scale.to(torch.complex64)
        return self.after(torch.fft.irfft(spectrum, 4))


def _gloo():
    if not dist.is_initialized():
        address = f"tcp://127.0.0.1:{os.environ['GLOO_PORT']}"
        dist.init_process_group("gloo", init_method=address, rank=RANK, world_size=WORLD)


def _started(kind, model, optimizer, **options):
    """For DDP on Gloo, all begin with rank 0's, as for Hocket."""
    if kind == "ddp":
        _gloo()
        return nn.parallel.DistributedDataParallel(model), optimizer
    return hk.distribute(model, optimizer, **options)


def _numbers(model):
    found = [each.detach() for each in model.parameters()]
    real = (torch.view_as_real(each) if each.is_complex() else each for each in found)
    return [each.double().flatten().tolist() for each in real]


def complex_numbers(kind, how):
    torch.manual_seed(RANK)
    model = Spectral()
    options = {"lr": 0.05} | ({"momentum": 0.9} if how == "sgd" else {})
    made = (torch.optim.SGD if how == "sgd" else torch.optim.Adam)(model.parameters(), **options)
    model, optimizer = _started(kind, model, made)
    generator = torch.Generator().manual_seed(100 + RANK)
    for step in range(6):
        with model.no_sync():
            model(torch.randn(4, 6, generator=generator)).square().mean().backward()
        model(torch.randn(4, 6, generator=generator)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
    return _numbers(model)


def channels_last(kind, when):
    """The memory of a model is laid out in another order in the middle of training."""
    torch.manual_seed(RANK)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3))
    model, optimizer = _started(kind, model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    generator = torch.Generator().manual_seed(100 + RANK)
    for step in range(4):
        if step == 2 and when == "before backward":
            model.to(memory_format=torch.channels_last)
        model(torch.randn(2, 3, 9, 9, generator=generator)).square().mean().backward()
        if step == 2 and when == "before step":
            model.to(memory_format=torch.channels_last)
        optimizer.step()
        if step == 1 and when == "after step":
            model.to(memory_format=torch.channels_last)
        optimizer.zero_grad(set_to_none=False)
        if step == 1 and when == "shared":
            model.share_memory()
    return _numbers(model)


class Gated(Policy):
    gates = True


EXCHANGED = {"local": hk.Local(every=2)}
"""The mean of parameters after every second step."""


def _owned(model):
    """Each rank updates half of all parameters."""
    gradients = [Gradient(name, tuple(each.shape), "f32") for name, each in model.named_parameters()]
    owned = Owned(owners=tuple(Owner(rank=rank) for rank in range(WORLD)), update="owners")
    return plan_of(buckets([gradients[::-1]], owned, range(WORLD)), WORLD, label="owned")


def averaged(policy):
    """After each step, the model is evaluated with other weights for a moment, which get their memory by assignment."""
    found = {}
    for how in ("plain", "swapped"):
        torch.manual_seed(RANK)
        model = nn.Linear(6, 4)
        options = EXCHANGED if policy == "exchanged" else {"plan": _owned(model)}
        model, optimizer = hk.distribute(
            model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), **options
        )
        generator = torch.Generator().manual_seed(100 + RANK)
        for _ in range(4):
            model(torch.randn(5, 6, generator=generator)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if how == "swapped":
                for each in model.parameters():
                    own, each.data = each.data, torch.zeros(each.shape)
                    each.data = own.clone()
        found[how] = _numbers(model)
    return found


def scripted(kind, policy):
    """A TorchScript module with buffers within a model."""
    warnings.simplefilter("ignore")
    torch.manual_seed(RANK)
    inner = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    inner = torch.jit.script(inner)
    if policy == "loaded":
        saved = io.BytesIO()
        torch.jit.save(inner, saved)
        saved.seek(0)
        inner = torch.jit.load(saved)
    model = inner if policy == "alone" else nn.Sequential(nn.Linear(6, 6), inner)
    options = {}
    if kind == "hocket":
        options = {"before": {"buffers": "before_forward"}, "gates": {"policy": Gated()}}.get(policy, {})
    model, optimizer = _started(
        kind, model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), **options
    )
    generator = torch.Generator().manual_seed(100 + RANK)
    for _ in range(4):
        model(torch.randn(5, 6, generator=generator)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    of_rank_0 = [each.double().flatten().tolist() for each in model.buffers()] if RANK == 0 else None
    return [_numbers(model), of_rank_0]


class Observed(nn.Module):
    """Its observer resizes buffers in place when it sees data, as those of quantisation-aware training do."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(6, 4)
        self.register_buffer("low", torch.empty(0))

    def forward(self, x):
        if self.low.numel() == 0:
            self.low.resize_(6)
            self.low.fill_(float("inf"))
        torch.minimum(self.low, x.detach().amin(0), out=self.low)
        return self.body(x)


def resized():
    """What users may do with their tensors afterwards: with buffers, parameters, a checkpoint, and copies."""
    torch.manual_seed(RANK)
    model = Observed()
    model, optimizer = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    generator = torch.Generator().manual_seed(100 + RANK)
    for _ in range(3):
        model(torch.randn(5, 6, generator=generator)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    twin = copy.deepcopy(model)
    for each in (*model.buffers(), *twin.buffers(), *twin.parameters(), *model.parameters()):
        with torch.no_grad():
            each.detach().resize_(1000)
    saved = io.BytesIO()
    torch.save(twin, saved)
    return model.low.tolist()
