"""Description of an optimizer for a parameter server, which runs the same one: its class, and each group's options. For the
guard of merged and late updates: the optimizer's rate and its momentum.

Numbers (learning rates, betas) may change from step to step, as with schedulers, and travel with every step; other
options are constant.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from hocket.artefacts.learning import Learning
from hocket.errors import UsageError
from hocket.parameter_server.description import Group

# Each optimizer updates an element from that element, its gradient and its state alone, so that a parameter may be split over
# servers. Missing, apart from optimizers that need several parameters: Adafactor and Muon, which use whole matrices;
# Adagrad, whose state begins before the first step.
ELEMENTWISE = frozenset(
    {"ASGD", "Adadelta", "Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD"}
)


def kind_of(optimizer: torch.optim.Optimizer, parameters: Iterable[torch.nn.Parameter]) -> str:
    """Return the name of the optimizer's class. UsageError: servers cannot run it for these parameters."""
    name = type(optimizer).__name__
    if name not in ELEMENTWISE or getattr(torch.optim, name) is not type(optimizer):
        raise UsageError(
            f"parameter servers cannot run the optimizer {name}: its update is not known to be element by element\n"
            f"hint: they run {', '.join(sorted(ELEMENTWISE))} of torch.optim"
        )
    if any(optimizer.state.get(each) for each in parameters):
        raise UsageError(
            f"{name} has state from earlier steps, which parameter servers do not take over\n"
            "hint: make a new optimizer, or resume without parameter servers"
        )
    return name


def options_of(optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
    """Return each group's options that ranks can compare, as values of JSON, and the optimizer's class.

    >>> options_of(torch.optim.SGD([torch.zeros(1)], lr=torch.tensor(0.5)))[0]["lr"]
    0.5
    """
    kind = {"optimizer": type(optimizer).__name__}
    return [
        kind
        | {name: value for name in group if name != "params" and (value := plain(group[name])) is not _OTHER}
        for group in optimizer.param_groups
    ]


_OTHER = object()


def plain(value: Any) -> Any:
    """Return a number, a word, or a list of such; tensors of one element are numbers. `_OTHER`: the value is something else."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 and value.device.type == "cpu" else _OTHER
    if isinstance(value, tuple | list):
        parts = [plain(each) for each in value]
        return _OTHER if _OTHER in parts else parts
    return _OTHER


def groups_of(optimizer: torch.optim.Optimizer) -> tuple[Group, ...]:
    """Return current options of all groups. UsageError: an option cannot be sent."""
    return tuple(
        _group({name: value for name, value in group.items() if name != "params"}, at)
        for at, group in enumerate(optimizer.param_groups)
    )


def numbers_of(optimizer: torch.optim.Optimizer, known: tuple[Group, ...]) -> list[float]:
    """Return current numbers of all groups, concatenated. UsageError: another option was changed."""
    flat: list[float] = []
    for at, (group, options) in enumerate(zip(known, optimizer.param_groups, strict=False)):
        for name, value in group.fixed.items():
            if options.get(name) != value:
                raise UsageError(
                    f"option `{name}` of parameter group {at} was {value} when the model was distributed and is "
                    f"{options.get(name)} now: parameter servers are told of numbers alone"
                )
        now = _group({name: options[name] for name in group.numbers}, at)
        flat += now.flat()
    if len(optimizer.param_groups) != len(known):
        raise UsageError(
            f"the optimizer has {len(optimizer.param_groups)} parameter groups, it had {len(known)} when the model was distributed"
        )
    return flat


def group_of(optimizer: torch.optim.Optimizer, parameters: dict[str, torch.nn.Parameter]) -> dict[str, int]:
    """Return each parameter's group. UsageError: the optimizer lacks a parameter."""
    where = {id(each): at for at, group in enumerate(optimizer.param_groups) for each in group["params"]}
    for name, parameter in parameters.items():
        if id(parameter) not in where:
            raise UsageError(
                f"parameter `{name}` is not in the optimizer, so servers would not know how to update it\n"
                "hint: give the optimizer all parameters, or freeze it with requires_grad_(False)"
            )
    return {name: where[id(parameter)] for name, parameter in parameters.items()}


def one_parameter(kind: str, parameter: torch.Tensor, options: dict[str, Any]) -> torch.optim.Optimizer:
    """Make an optimizer of this class over one parameter alone."""
    made: torch.optim.Optimizer = getattr(torch.optim, kind)([{"params": [parameter], **options}])
    return made


def _group(options: dict[str, Any], at: int) -> Group:
    fixed: dict[str, bool | str | None] = {}
    numbers: dict[str, float | tuple[float, ...]] = {}
    for name, given in options.items():
        value = given.item() if isinstance(given, torch.Tensor) and given.numel() == 1 else given
        if isinstance(value, bool | str | None):
            fixed[name] = value
        elif isinstance(value, int | float):
            numbers[name] = float(value)
        elif isinstance(value, tuple | list) and all(type(each) in (int, float) for each in value):
            numbers[name] = tuple(map(float, value))
        else:
            raise UsageError(
                f"option `{name}` of parameter group {at} is a {type(value).__name__}, which parameter servers cannot be told"
            )
    return Group(fixed=fixed, numbers=numbers)


def learning_of(optimizer: torch.optim.Optimizer) -> Learning | None:
    """Return rate and momentum of the group with the largest rate; None for an optimizer without learning rates.

    Adam's moment is a mean of gradients, so a new one counts with 1 - β₁ of the rate; so does SGD's with its dampening.
    """
    steps = [_of_group(group) for group in optimizer.param_groups if "lr" in group]
    if not steps:
        return None
    rate, momentum = max(steps)
    return Learning(
        optimizer=type(optimizer).__name__,
        rate=rate,
        momentum=momentum,
        adaptive=not isinstance(optimizer, torch.optim.SGD),
    )


def _of_group(group: dict[str, Any]) -> tuple[float, float]:
    """Return the factors by which a step multiplies a new gradient, and its last move."""
    rate = float(group["lr"])
    if "betas" in group:
        momentum = float(group["betas"][0])
        return rate * (1 - momentum), momentum
    return rate * (1 - float(group.get("dampening", 0.0))), float(group.get("momentum", 0.0))
