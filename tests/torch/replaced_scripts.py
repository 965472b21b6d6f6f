"""What ranks of `test_replaced.py` do: they change what a distributed model trains."""

import copy
import io
import os
import warnings

import torch
import torch.distributed as dist
from torch import nn

import hocket.torch as hk
from hocket.errors import Error, UsageError
from tests.torch.tensor_scripts import EXCHANGED, Gated

RANK = int(os.environ.get("HOCKET_RANK", "0"))
WORLD = int(os.environ.get("HOCKET_WORLD", "1"))


def _model():
    torch.manual_seed(RANK)
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4), nn.Linear(4, 2))
    model[3].requires_grad_(False)
    return model


def _sgd(model):
    return torch.optim.SGD((each for each in model.parameters() if each.requires_grad), lr=0.05, momentum=0.9)


def _numbers(model):
    return [each.detach().double().flatten().tolist() for each in model.parameters()]


def _steps(model, optimizer, generator, count=2, call=None):
    for _ in range(count):
        (call or model)(torch.randn(5, 6, generator=generator)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def _replace(model, optimizer, how):
    """Whatever `how` says; each rank makes other values."""
    torch.manual_seed(7 + RANK)
    if how == "head":
        model[4] = nn.Linear(4, 2)
        optimizer.add_param_group({"params": list(model[4].parameters())})
    elif how == "unfrozen":
        model[3].requires_grad_(True)
        optimizer.add_param_group({"params": list(model[3].parameters())})
    elif how == "assigned":
        state = {
            name: each + 0.01 * RANK if each.is_floating_point() else each
            for name, each in model.state_dict().items()
        }
        model.load_state_dict(state, assign=True)
    elif how == "added":
        model.add_module("more", nn.Linear(2, 3))
        optimizer.add_param_group({"params": list(model.more.parameters())})
    elif how == "deep":
        model[4].weight = nn.Parameter(torch.randn(2, 4))


def noticed(how, call, who):
    """Parameters are replaced; what the ranks that have done so are told."""
    model = _model()
    model, optimizer = hk.distribute(model, _sgd(model), policy=Gated() if call == "gates" else None)
    generator = torch.Generator().manual_seed(100 + RANK)
    parts = (lambda x: model[4](model[3](model[2](model[1](model[0](x)))))) if call == "parts" else None
    _steps(model, optimizer, generator, call=parts)
    if who == "all" or RANK == 1:
        _replace(model, optimizer, how)
    if who == "one":
        _steps(model, optimizer, generator, call=parts)
    before = _numbers(model)
    try:
        _steps(model, optimizer, generator, call=parts)
    except UsageError as error:
        return [str(error), _numbers(model) == before]
    return None


def again(how, kind):
    """The same, and the model is distributed again; for DDP, wrapped again. Replicas, and whether they are those of one process."""
    model = _model()
    options = {"gates": {"policy": Gated()}, "exchanged": EXCHANGED}.get(kind, {})

    def made(model, optimizer):
        if kind != "ddp":
            return hk.distribute(model, optimizer, **options)
        if not dist.is_initialized():
            address = f"tcp://127.0.0.1:{os.environ['GLOO_PORT']}"
            dist.init_process_group("gloo", init_method=address, rank=RANK, world_size=WORLD)
        return nn.parallel.DistributedDataParallel(model), optimizer

    optimizer = _sgd(model)
    wrapped, optimizer = made(model, optimizer)
    generator = torch.Generator().manual_seed(100 + RANK)
    found = []
    for each in how.split("+"):
        _steps(wrapped, optimizer, generator, 4)
        _replace(model, optimizer, each)
        if each in ("assigned", "deep"):
            optimizer = _sgd(model)
        wrapped, optimizer = made(model, optimizer)
        _steps(wrapped, optimizer, generator, 4)
        found.append(_numbers(model))
    return found


def swapped(how):
    """PyTorch's way of giving a parameter other contents with its identity; what ranks are told."""
    model = _model()
    model, optimizer = hk.distribute(model, _sgd(model))
    generator = torch.Generator().manual_seed(100 + RANK)
    _steps(model, optimizer, generator)
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        model.load_state_dict({name: each.clone() for name, each in model.state_dict().items()})
    finally:
        torch.__future__.set_swap_module_params_on_conversion(False)
    if how == "again":
        model, optimizer = hk.distribute(model, _sgd(model))
        _steps(model, optimizer, generator)
        return _numbers(model)
    try:
        _steps(model, optimizer, generator)
    except UsageError as error:
        return str(error)
    return None


def other_optimizer(kind):
    """A new one, as scripts make it for another stage, and one of a loss with parameters of its own."""
    model = _model()
    options = {"gates": {"policy": Gated()}, "exchanged": EXCHANGED}.get(kind, {})
    model, optimizer = hk.distribute(model, _sgd(model), **options)
    generator = torch.Generator().manual_seed(100 + RANK)
    _steps(model, optimizer, generator)
    if kind == "loss":
        weight = nn.Parameter(torch.ones(2))
        model, optimizer = hk.distribute(model, torch.optim.SGD([*model.parameters(), weight], lr=0.1))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            _steps(model, optimizer, generator, call=lambda x: model(x) * weight)
        return [str(each.message) for each in caught]
    optimizer = _sgd(model)
    try:
        _steps(model, optimizer, generator, 4)
    except UsageError as error:
        return str(error)
    return _numbers(model)


def parts(kind):
    """A model of parts of one that was trained before, and both in turns."""
    model = _model()
    model, optimizer = hk.distribute(model, _sgd(model))
    generator = torch.Generator().manual_seed(100 + RANK)
    _steps(model, optimizer, generator)
    torch.manual_seed(RANK)
    other = nn.Sequential(model[0], model[1], nn.Linear(8, 3))
    other, optimizer = hk.distribute(other, _sgd(other))
    _steps(other, optimizer, generator)
    found = _numbers(other)
    if kind == "old one":
        try:
            _steps(model, optimizer, generator, 1)
        except Error as error:
            return str(error)
        return None
    if kind == "whole again":
        model, optimizer = hk.distribute(model, _sgd(model))
        _steps(model, optimizer, generator)
        found += _numbers(model)
    return found


def copies():
    """Copies and pickles of a distributed model are trained by one rank alone, however they are changed."""
    model = _model()
    model, optimizer = hk.distribute(model, _sgd(model))
    generator = torch.Generator().manual_seed(100 + RANK)
    _steps(model, optimizer, generator)
    if RANK == 1:
        saved = io.BytesIO()
        torch.save(model, saved)
        saved.seek(0)
        for twin in (copy.deepcopy(model), torch.load(saved, weights_only=False)):
            twin[4] = nn.Linear(4, 3)
            _steps(twin, _sgd(twin), generator)
    _steps(model, optimizer, torch.Generator().manual_seed(RANK))
    return _numbers(model)
