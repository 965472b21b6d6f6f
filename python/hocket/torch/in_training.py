"""A model in training: `distribute` makes it, and a script's loop asks for the rest by these functions."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch

from hocket.errors import UsageError
from hocket.policy.policy import Value
from hocket.torch import join as joining
from hocket.torch.curvature import largest_curvature
from hocket.torch.division import clip_divided
from hocket.torch.framework import Torch
from hocket.torch.module_buffers import BeforeForward, Buffers
from hocket.torch.watch import Watch
from hocket.training.loop.loop import Loop
from hocket.training.step.session import Session


@dataclass(frozen=True)
class Distributed:
    """A model in training. `buffers`, `before_forward`: parts that keep its buffers equal, if any do."""

    framework: Torch
    session: Session
    loop: Loop
    buffers: Buffers | None = None
    before_forward: BeforeForward | None = None
    watch: Watch | None = None


distributed: WeakKeyDictionary[torch.nn.Module, Distributed] = WeakKeyDictionary()
"""Distributed form of each model, which `distribute` has made."""


@contextlib.contextmanager
def no_sync(model: torch.nn.Module) -> Iterator[None]:
    """Accumulate gradients inside, in backward, without communication; also `model.no_sync()`."""
    found = distributed_of(model)
    with found.session.no_sync():
        yield
    found.loop.accumulating = True


def join(
    *models: torch.nn.Module,
    divide_by_initial_world_size: bool = True,
    throw_on_early_termination: bool = False,
) -> contextlib.AbstractContextManager[None]:
    """Train with unequal numbers of batches: `with hk.join(model):` around the loop, on all ranks.

    A rank that leaves the body first takes part in the others' reductions with zeros, until all ranks have left. Then all go on
    from the state of the highest rank among those that finished last: parameters, buffers and, other than with the `join` of
    DistributedDataParallel, the optimizer's state. Inside, a step is one forward and backward with communication; buffers are
    sent before its forward, from the highest rank that has a batch, as DistributedDataParallel does.

    Args:
        models: distributed models, in the order in which their backward passes come.
        divide_by_initial_world_size: True: gradients are sums over the ranks that have batches, divided by the number of all
            ranks. False: divided by the number of those that have batches.
        throw_on_early_termination: True: when the first rank has finished, all ranks raise UsageError at the next forward.

    Raises:
        UsageError: a finished rank cannot contribute zeros to a model's reductions: policies that promise less than the mean,
            local steps, parameter servers.
    """
    found = [(distributed_of(model), distributed_of(model).session.joinable()) for model in models]
    windows = [
        joining.Window(
            each.framework,
            session,
            each.buffers,
            each.before_forward,
            by_initial_world=divide_by_initial_world_size,
            throws=throw_on_early_termination,
        )
        for each, session in found
        if session is not None and each.buffers is not None
    ]
    return joining.joined_training(windows)


def flush(model: torch.nn.Module) -> None:
    """Apply all gradients that were made and not applied yet: `optimizer.step()` is called once for each update that is left.

    For plans with merged or late gradients, before the model is evaluated or saved, and at the end; with other plans there is
    nothing to do. All ranks call it at the same place, after a step.

    Raises UsageError when the last backward's gradients wait for a step.
    """
    distributed_of(model).session.flush()


def log(model: torch.nn.Module, **values: Any) -> None:
    """Add values of this step (`step=3, loss=2.5`) to the trace, if one is written.

    `loss` is also watched, where updates are merged or late: when it grows beyond its earlier values, all ranks go back to a safer
    schedule. The loss is this rank's own, a number or a tensor of one; a value in each step is best.

    `weight`: what this step counts by, such as tokens, where ranks step alone with `Local(weights="logged")`; log it before the
    optimizer's step.

    Raises UsageError for a loss that is no number, or a weight that is none above or at 0.
    """
    session = distributed_of(model).session
    if "loss" in values:
        values["loss"] = _number("loss", values["loss"])
        session.observe(loss=values["loss"])
    if "weight" in values:
        values["weight"] = _number("weight", values["weight"])
        if not 0 <= values["weight"] < math.inf:
            raise UsageError(f"log: weight={values['weight']:g} is not a number from 0 on")
        session.observe(weight=values["weight"])
    if session.spans is not None:
        session.spans.log(**values)


def curvature(model: torch.nn.Module, loss: Callable[[], torch.Tensor], *, iterations: int = 20) -> float:
    """Return how curved the loss is at the model's parameters: the largest eigenvalue of its Hessian, by power iteration on finite
    differences.

    The curvature decides how late gradients may be at a learning rate; a job that may use late gradients judges them by it. Call it
    before the loop, on all ranks or on some; nothing is sent.

    Args:
        model: a distributed model. Parameters, buffers, gradients and the state of torch's random numbers are restored.
        loss: a forward on a fixed batch, which returns its loss; it is called twice an iteration.
        iterations: limit of iterations; they end when the value moves by less than 1 %.

    Raises UsageError for a loss that is no finite scalar of the parameters.

    >>> import hocket.torch as hk
    >>> model = torch.nn.Linear(2, 1, bias=False)
    >>> model, _ = hk.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    >>> round(hk.curvature(model, lambda: 2 * model.weight.square().sum()), 3)
    4.0
    """
    found = distributed_of(model)
    value = largest_curvature(model, found.framework.optimizer, loss, iterations)
    found.session.observe(curvature=value)
    return value


def record(model: torch.nn.Module, **values: float) -> None:
    """Add values of this step to this rank's statistics, which a policy reads. Without a policy, this does nothing."""
    for name, value in values.items():
        distributed_of(model).session.record(name, value)


def clip_grad_norm_(model: torch.nn.Module, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """Clip all gradients of a distributed model as `torch.nn.utils.clip_grad_norm_` does. With gates, wait for all of them first.

    Where owners update, all ranks must call it: each adds the norm of what it owns, and clips that.
    """
    found = distributed_of(model)
    session = found.session
    session.settle()
    if found.framework.anchor.awaits_step:
        return found.framework.anchor.clip(max_norm, norm_type)
    if not session.owners:
        return torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm, norm_type)
    if session.owners.in_join is not None:
        session.owners.in_join(max_norm, norm_type)
    numbers = session.owners.numbers
    return clip_divided(model.parameters(), found.framework.division, numbers, max_norm, norm_type)


def agreed(model: torch.nn.Module) -> dict[str, Value]:
    """Return the values on which all ranks agree in the current epoch, by name, and its number as `epoch`."""
    return dict(distributed_of(model).session.agreed())


def steps(model: torch.nn.Module) -> int:
    """Return the number of steps that were made since the job began, as all ranks count them.

    With `Local(paced=True)`, a step of a slow rank counts as several of the fastest one. Ranks are alike whenever the number is a
    multiple of `every`: let a loop end there, and flush there.
    """
    return distributed_of(model).session.iteration


def rank(model: torch.nn.Module) -> int:
    """Return this process's rank in the job of a distributed model."""
    return distributed_of(model).session.job.rank


def world(model: torch.nn.Module) -> int:
    """Return the number of ranks in the job of a distributed model."""
    return distributed_of(model).session.job.world


def _number(name: str, value: Any) -> float:
    try:
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (RuntimeError, TypeError, ValueError) as error:
        raise UsageError(f"log: {name}={value!r} is no number") from error


def distributed_of(model: torch.nn.Module) -> Distributed:
    """Return what `distribute` made of the model. UsageError: the model is not distributed."""
    if not isinstance(model, torch.nn.Module):
        raise UsageError(
            f"not a model, but of type {type(model).__name__}\n"
            "hint: the model itself, which hk.distribute has returned, and not its parameters"
        )
    found = distributed.get(model)
    if found is None:
        raise UsageError(
            "the model is not distributed\nhint: model, optimizer = hk.distribute(model, optimizer)"
        )
    return found
