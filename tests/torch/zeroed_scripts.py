"""What ranks of `test_gradients.py` do to gradients that are merged or late: scripts that zero them in one way or another."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

import hocket.torch as hk
from hocket.settings import Settings
from tests.torch import delayed_scripts
from tests.torch.gradient_side import rank


def merged() -> dict[str, bool]:
    """By schedule, and way of zeroing gradients that are merged or late: whether training ends where it does with `zero_grad()`."""
    ways: dict[str, Callable[[nn.Module, torch.optim.Optimizer], object]] = {
        "zeros": lambda _, optimizer: optimizer.zero_grad(set_to_none=False),
        "the model's": lambda model, _: model.zero_grad(),
        "by hand": lambda model, _: [setattr(each, "grad", None) for each in model.parameters()],
        "thrown away": _thrown_away,
    }
    found = {}
    for lengths, at in itertools.product(((1,), (2,), (2, 1)), ("end", "gate")):
        plain = _merged(lengths, at, lambda _, optimizer: optimizer.zero_grad())
        for name, zero in ways.items():
            found[f"{lengths} {at} {name}"] = _merged(lengths, at, zero) == plain
    return found


def _thrown_away(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """What was accumulated without communication, and not what is summed."""
    optimizer.zero_grad()
    with model.no_sync():  # type: ignore[operator]
        delayed_scripts.loss_of(model, 99, rank()).backward()
    optimizer.zero_grad()


def _merged(
    lengths: tuple[int, ...], at: str, zero: Callable[[nn.Module, torch.optim.Optimizer], object]
) -> list[Any]:
    model = delayed_scripts.network()
    schedule = delayed_scripts.schedule_of(lengths, 1, 2, "linear", at)
    names = [name for name, _ in model.named_parameters()]
    made = delayed_scripts.plan_for(model, schedule, [names[2:], names[:2]])
    settings = replace(Settings.from_environment(), sentinel=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    model, optimizer = hk.distribute(model, optimizer, plan=made, settings=settings)
    for iteration in range(7):
        zero(model, optimizer)
        delayed_scripts.loss_of(model, iteration, rank()).backward()
        optimizer.step()
    hk.flush(model)
    return [each.tolist() for each in model.parameters()]
