"""Gradients whose hook has been called in a backward: they may be on their way to other ranks, so no script may touch them.

Hooks of the script see a rank's own gradient, as with DistributedDataParallel: whenever they were registered, the gradient is
announced after them. They may not take the gradient away or step with it, because other ranks have other gradients. A later
change of a gradient is noticed when backward ends, by the gradient's version, which autograd counts.

Cost: 0.5 µs for each gradient in its hook, and 0.2 µs when backward ends.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakSet

import torch
from torch.optim import optimizer as internals

from hocket.errors import UsageError
from hocket.torch.backward import when_it_ends
from hocket.torch.trainable import hooked

_all: WeakSet[Announced] = WeakSet()


class Announced:
    """Announced gradients of one model."""

    def __init__(self) -> None:
        """Start with no parameter hooked."""
        self._names: dict[int, str] = {}
        self._noted: dict[int, tuple[torch.Tensor, torch.Tensor, int]] = {}
        """`id` of a parameter → the parameter, its gradient when that was announced, and the gradient's version then."""
        self._ended = -1
        """Number of the last backward that is over, with its gradients reduced."""
        self.alone: torch.optim.Optimizer | None = None
        """Only optimizer that may step these parameters; None: any may."""
        _all.add(self)

    @property
    def seen(self) -> bool:
        """True if a backward with communication is over."""
        return self._ended >= 0

    def hook(self, name: str, parameter: torch.nn.Parameter, ready: Callable[[Any], None]) -> Any:
        """Call `ready(parameter)` in each backward, when its gradient is complete."""
        self._names[id(parameter)] = name
        noted = self._noted

        def announce(parameter: torch.Tensor) -> None:
            hooks: dict[int, Any] = parameter._post_accumulate_grad_hooks
            if len(hooks) > 1 and next(reversed(hooks)) != handle.id:
                # Later hooks may change the gradient. From the next backward on, they run before this one.
                hooks[handle.id] = hooks.pop(handle.id)
                when_it_ends(functools.partial(later, parameter))
            else:
                tell(parameter)

        def later(parameter: torch.Tensor) -> None:
            # A gradient that was not announced when backward ended was sent as it was.
            if self._ended != _backward():
                tell(parameter)

        def tell(parameter: torch.Tensor) -> None:
            if parameter.grad is None:
                raise UsageError(
                    f"a hook took the gradient of `{name}` away in backward, before ranks reduced it: each would step with its "
                    "own\nhint: step and zero gradients after backward, and use no optimizer that steps in hooks"
                )
            ready(parameter)
            gradient = parameter.grad
            noted[id(parameter)] = parameter, gradient, gradient._version

        handle = hooked(parameter, announce)
        return handle

    def release(self) -> None:
        """Forget the parameters when their hooks are removed: another object announces them now, or none does."""
        self._names, self.alone = {}, None
        self._noted.clear()

    def begin(self) -> None:
        """Begin a backward with communication: gradients that were accumulated without belong to the script."""
        self._noted.clear()

    def check(self) -> None:
        """Raise UsageError for the first gradient that was written to, or replaced, since it was announced in this backward."""
        for parameter, gradient, version in self._noted.values():
            if parameter.grad is not gradient or gradient._version != version:
                raise UsageError(
                    f"the gradient of `{self._names[id(parameter)]}` was changed in backward after it had been sent: ranks would "
                    "go on with different ones\nhint: change it after backward, or in a hook of its own parameter "
                    "(`register_post_accumulate_grad_hook`)"
                )

    def end(self) -> None:
        """Note that this backward is over."""
        self._noted.clear()
        self._ended = _backward()

    def check_step(self, optimizer: torch.optim.Optimizer) -> None:
        """Raise UsageError if a step comes before gradients are reduced, or from another optimizer than `alone`."""
        early = _backward() not in (-1, self._ended)
        other = self.alone not in (None, optimizer)
        if not (early or other):
            return
        own = (each for group in optimizer.param_groups for each in group["params"])
        name = next((self._names[id(each)] for each in own if id(each) in self._names), None)
        if name is None:
            return
        what = type(optimizer).__name__
        if early:
            raise UsageError(
                f"{what} steps `{name}` in the middle of backward, with this rank's own gradient: the ranks' parameters would go "
                "apart\nhint: step after backward, when all ranks have the same gradients"
            )
        raise UsageError(
            f"{what} steps `{name}`, and another optimizer was distributed: gradients are merged or late, which that one alone "
            "knows\nhint: one optimizer with groups of parameters, or the promise exact"
        )


def _backward() -> int:
    """Return the number of the backward that runs in this thread; -1: none does."""
    return torch._C._current_graph_task_id()


class Sealed:
    """Gradients that must not change until they are reduced."""

    def __init__(self, parameters: Iterable[torch.Tensor]) -> None:
        """Note each parameter's gradient and its version."""
        self._noted = [(each, each.grad, _version(each.grad)) for each in parameters]

    def changed(self) -> torch.Tensor | None:
        """Return the first parameter whose gradient was written to or replaced since."""
        return next(
            (
                each
                for each, gradient, version in self._noted
                if each.grad is not gradient or _version(gradient) != version
            ),
            None,
        )


def _version(gradient: torch.Tensor | None) -> int:
    return -1 if gradient is None else gradient._version


def _before_step(optimizer: torch.optim.Optimizer, _args: object, _kwargs: object) -> None:
    for each in list(_all):
        each.check_step(optimizer)


# This hook reads nothing of a step that gates defer.
_before_step.reads_nothing = True  # type: ignore[attr-defined]
internals.register_optimizer_step_pre_hook(_before_step)
