"""What ranks of `test_gradients.py` do to gradients that are on their way: each script must end with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.optim import _apply_optimizer_in_backward

import hocket.torch as hk
from hocket.errors import UsageError
from tests.torch import delayed_scripts
from tests.torch.gradient_side import Parts, Side, momentum, rank, world

Prepare = Callable[[Parts, torch.optim.Optimizer], object]
SCRIPTS: dict[str, Prepare] = {}


def script(function: Prepare) -> Prepare:
    SCRIPTS[function.__name__] = function
    return function


@script
def a_hook_takes_it(module: Parts, _optimizer: torch.optim.Optimizer) -> None:
    module.first.bias.register_post_accumulate_grad_hook(lambda own: setattr(own, "grad", None))


@script
def a_hook_steps(module: Parts, _optimizer: torch.optim.Optimizer) -> None:
    own = torch.optim.SGD([module.second.weight], lr=0.1)
    module.second.weight.register_post_accumulate_grad_hook(lambda _: own.step())


@script
def the_optimizer_steps_in_a_hook(module: Parts, optimizer: torch.optim.Optimizer) -> None:
    """The one that Hocket knows, when the last gradient is made."""
    module.first.weight.register_post_accumulate_grad_hook(lambda _: optimizer.step())


@script
def applied_in_backward(module: Parts, _optimizer: torch.optim.Optimizer) -> None:
    """By PyTorch's own function, whose hooks come after all others."""
    _apply_optimizer_in_backward(torch.optim.SGD, module.parameters(), {"lr": 0.1})


@script
def another_hook_writes(module: Parts, _optimizer: torch.optim.Optimizer) -> None:
    def hook(_: torch.Tensor) -> None:
        assert module.second.bias.grad is not None
        module.second.bias.grad.mul_(2)

    module.first.bias.register_post_accumulate_grad_hook(hook)


@script
def another_hook_replaces(module: Parts, _optimizer: torch.optim.Optimizer) -> None:
    """One that came before, by its own values."""

    def hook(_: torch.Tensor) -> None:
        assert module.second.bias.grad is not None
        module.second.bias.grad = module.second.bias.grad.clone()

    module.first.bias.register_hook(hook)


@script
def a_layer_s_hook_writes(module: Parts, _optimizer: torch.optim.Optimizer) -> None:
    """To its parameters' gradients, as far as there are any."""

    def hook(layer: torch.nn.Module, _inputs: object, _outputs: object) -> None:
        for each in layer.parameters():
            if each.grad is not None:
                each.grad.clamp_(-1, 1)

    module.second.register_full_backward_hook(hook)


@script
def a_layer_s_hook_zeroes(module: Parts, optimizer: torch.optim.Optimizer) -> None:
    module.first.register_full_backward_pre_hook(lambda *_: optimizer.zero_grad())


def told(kind: str, name: str) -> str:
    module = Parts()
    optimizer = momentum(module.parameters())
    side = Side(kind)
    model = side.start(module, optimizer)
    SCRIPTS[name](module, optimizer)
    return _told(lambda: model(side.batch()).backward(), optimizer)


AFTERWARDS: dict[str, Callable[[list[torch.nn.Parameter], torch.optim.Optimizer], Any]] = {
    "writes": lambda own, _: [each.grad.mul_(0.5) for each in own if each.grad is not None],
    "clips": lambda own, _: torch.nn.utils.clip_grad_norm_(own, 0.01),
    "replaces": lambda own, _: [setattr(each, "grad", torch.ones_like(each)) for each in own],
    "takes away": lambda own, optimizer: (optimizer.step(), [setattr(each, "grad", None) for each in own]),
    "zeroes": lambda own, optimizer: (
        optimizer.step(),
        [each.grad.zero_() for each in own if each.grad is not None],
    ),
}


def told_afterwards(how: str) -> str:
    """With gates, where gradients are reduced after backward."""
    module = Parts()
    optimizer = momentum(module.parameters())
    side = Side("gates")
    model = side.start(module, optimizer)
    own = list(module.parameters())

    def step() -> None:
        model(side.batch()).backward()
        AFTERWARDS[how](own, optimizer)

    return _told(step, optimizer)


def told_of_two() -> str:
    """Optimizers, one of which nobody knows, where gradients are merged."""
    model = delayed_scripts.network()
    weights = [each for each in model.parameters() if each.dim() == 2]
    others = [each for each in model.parameters() if each.dim() == 1]
    optimizer, other = torch.optim.SGD(weights, lr=0.1), torch.optim.SGD(others, lr=0.1)
    model, optimizer = hk.distribute(model, optimizer, plan=delayed_scripts.late_plan(model, world()))

    def step() -> None:
        optimizer.zero_grad()
        other.zero_grad()
        delayed_scripts.loss_of(model, 0, rank()).backward()
        optimizer.step()
        other.step()

    return _told(step, optimizer)


def _told(step: Callable[[], None], optimizer: torch.optim.Optimizer) -> str:
    try:
        for _ in range(3):
            step()
            optimizer.step()
            optimizer.zero_grad()
    except UsageError as error:
        return str(error)
    return ""
