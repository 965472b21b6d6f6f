"""Hooks of a distributed model's own forward, which copies and pickles of the model lack."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from hocket.errors import UsageError


def before_forward(model: torch.nn.Module, call: Callable[[], None]) -> torch.utils.hooks.RemovableHandle:
    """Call `call()` when a forward of the model begins, before all other hooks. UsageError: TorchScript has no hooks."""
    check_hooks(model)
    return model.register_forward_pre_hook(Hook(call), prepend=True)


def after_forward(model: torch.nn.Module, call: Callable[[], None]) -> torch.utils.hooks.RemovableHandle:
    """Call `call()` when a forward of the model is over. UsageError: TorchScript has no hooks."""
    check_hooks(model)
    return model.register_forward_hook(Hook(call))


def check_hooks(model: torch.nn.Module) -> None:
    """Raise UsageError if the model is TorchScript as a whole."""
    if isinstance(model, torch.jit.ScriptModule):
        raise UsageError(
            f"{type(model).__name__}: the whole model is a TorchScript module, which calls nobody when its forward begins\n"
            "hint: torch.nn.Sequential(model) around it"
        )


class Hook:
    """Hook of a distributed model. Copies and pickles of the model are not distributed: their hook does nothing."""

    def __init__(self, call: Callable[[], None]) -> None:
        """Set the function to call at each forward."""
        self._call = call

    def __call__(self, *_: Any) -> None:
        """Call the function: a forward begins, or is over."""
        self._call()

    def __reduce__(self) -> tuple[type, tuple[Callable[[], None]]]:
        """Return a hook that does nothing, for copies and pickles."""
        return Hook, (_nothing,)


def _nothing() -> None:
    pass


class WithArguments(Hook):
    """Hook that is called with what the model gives it."""

    def __init__(self, call: Callable[..., object]) -> None:
        """Set the function to call."""
        self._called = call

    def __call__(self, *arguments: object) -> None:
        """Call it."""
        self._called(*arguments)
