"""Check for trained parameters whose gradients are not reduced: replaced, added or unfrozen after `distribute`.

The check runs before each forward and each step of the optimizer. If nothing was changed, it compares only identities: 40 µs for
212 parameters in 213 modules.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any

import torch

from hocket.errors import UsageError

NAMED = 5
"""Number of parameters that a message names."""


class Trainable:
    """Check of one model, whose `hooked` parameters are reduced."""

    def __init__(self, model: torch.nn.Module, hooked: Iterable[torch.nn.Parameter], where: str) -> None:
        """Note the model as it is. `where`: rank and host, for messages."""
        self._model, self._where = model, where
        self._hooked = {id(each): (each, _place(each)) for each in hooked}
        self._note()

    def check(self) -> None:
        """Raise UsageError with the names of parameters that are to be trained and are not hooked."""
        if self._is_as_noted():
            return
        found = self.strangers()
        if found:
            raise UsageError(
                f"{self._where}: {_named(found)} of {type(self._model).__name__} {_are(found)} trained, and "
                f"{'was' if len(found) == 1 else 'were'} not when the model was distributed: replaced, added or unfrozen since, "
                "each rank would train its own\n"
                "hint: model, optimizer = hk.distribute(model, optimizer) again, on all ranks, after such a change"
            )
        check_batch_norm(self._model)
        self._note()

    def strangers(self) -> list[str]:
        """Return the names of parameters that are to be trained and are not hooked."""
        # A function of the model may be called with other tensors in place of its parameters: these are no parameters.
        return [
            name
            for name, each in type(self._model).named_parameters(self._model)
            if each.requires_grad
            and not self._is_hooked(each)
            and isinstance(each, torch.nn.Parameter)
            and each.is_leaf
        ]

    def _is_hooked(self, parameter: torch.nn.Parameter) -> bool:
        known = self._hooked.get(id(parameter))
        return known is not None and _place(parameter) == known[1]

    def _note(self) -> None:
        """Note how the model is now. Compared objects are kept alive, so that no other object gets their identity."""
        modules = list(self._model.modules())
        self._held = [
            (each, tuple(each.values()))
            for module in modules
            for each in (module._parameters, module._modules)
            if len(each)
        ]
        self._bare: list[Sized] = [
            each for module in modules for each in (module._parameters, module._modules) if not len(each)
        ]
        parameters = type(self._model).parameters(self._model)
        self._frozen = [
            each for each in parameters if not each.requires_grad and id(each) not in self._hooked
        ]

    def _is_as_noted(self) -> bool:
        for now, noted in self._held:
            if len(now) != len(noted) or not all(map(operator.is_, now.values(), noted)):
                return False
        if any(map(len, self._bare)) or any(each.requires_grad for each in self._frozen):
            return False
        # `torch.utils.swap_tensors` keeps a parameter's identity, and replaces the tensor by which hooks are called.
        return all(_place(each) == noted for each, noted in self._hooked.values())


_place = operator.attrgetter("_cdata")
"""Address at which PyTorch keeps a tensor."""


def check_batch_norm(model: torch.nn.Module) -> None:
    """Raise UsageError with the name of a layer that should have the statistics of all ranks' batches, and has only this rank's."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.SyncBatchNorm):
            raise UsageError(
                f"`{name or type(model).__name__}` is a {type(module).__name__}: PyTorch has none for the CPU, so it would "
                "normalise with the batch of its own rank\n"
                "hint: leave BatchNorm as it is, whose statistics are kept equal, or use GroupNorm, which needs no batch"
            )


def hooked(parameter: torch.nn.Parameter, call: Callable[[Any], None]) -> torch.utils.hooks.RemovableHandle:
    """Hook a parameter, also a frozen one: when it is thawed, it has its hook."""
    frozen = not parameter.requires_grad
    if frozen:
        parameter.requires_grad_(True)
    if parameter._post_accumulate_grad_hooks is not None:
        # Where a parameter's tensor was swapped for another one, PyTorch does not call its hooks any more.
        parameter._post_accumulate_grad_hooks = parameter._post_accumulate_grad_hooks
    handle: torch.utils.hooks.RemovableHandle = parameter.register_post_accumulate_grad_hook(call)
    if frozen:
        parameter.requires_grad_(False)
    return handle


class Abandoned:
    """Parameters of a distributed model that a later one, made of its parts, lacks: their gradients are reduced no more."""

    def __init__(self) -> None:
        """Start with no parameter."""
        self._hooks: dict[int, torch.utils.hooks.RemovableHandle] = {}
        """`id` of a parameter → its hook; a handle of a parameter that is gone removes nothing."""

    def add(self, parameters: Mapping[str, torch.nn.Parameter], before: str, now: str) -> None:
        """Make a backward that makes one of their gradients raise UsageError. `before`, `now`: names of their model, and of the
        model that is distributed in its place."""
        for name, each in parameters.items():
            if each.requires_grad:
                self._hooks[id(each)] = each.register_post_accumulate_grad_hook(_refusing(name, before, now))

    def take(self, parameters: Iterable[torch.nn.Parameter]) -> None:
        """Remove the hooks of parameters that are distributed again."""
        for each in parameters:
            handle = self._hooks.pop(id(each), None)
            if handle is not None:
                handle.remove()


def _refusing(name: str, before: str, now: str) -> Callable[[Any], None]:
    def refuse(_: Any) -> None:
        raise UsageError(
            f"backward makes a gradient of `{name}` of {before}, which nobody reduces: {now} was distributed after it, with "
            f"parameters of it, and without this one\n"
            "hint: distribute the whole model once, or each of its parts by itself"
        )

    return refuse


def _named(names: list[str]) -> str:
    shown = ", ".join(f"`{each}`" for each in names[:NAMED])
    more = len(names) - NAMED
    return f"{shown} and {more} more" if more > 0 else shown


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
