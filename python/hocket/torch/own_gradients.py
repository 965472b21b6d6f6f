"""Gradients that are a rank's own between backward and step, and copies of them in the sums that travel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from weakref import ref

import torch

from hocket.errors import UsageError
from hocket.torch.announced import Sealed
from hocket.torch.parameters import write_gradient
from hocket.torch.scales import Scales


class OwnGradients:
    """Own gradients of one model; see `hocket.training.memory.anchor.OwnGradients`."""

    def __init__(self, trained: Mapping[str, torch.nn.Parameter], scales: Scales) -> None:
        """Begin before the first backward."""
        self._trained, self._scales = trained, scales
        self._stepped: dict[str, ref[torch.Tensor]] = {}
        """Gradients of the last step."""
        self._sealed: Sealed | None = None

    def copy(self, name: str, view: torch.Tensor, *, add: bool) -> None:
        """Copy a gradient, or add it. UsageError: it is that of the last step."""
        gradient = self._trained[name].grad
        before = self._stepped.pop(name, None)
        if gradient is not None and before is not None and before() is gradient:
            raise UsageError(
                f"the gradient of `{name}` is that of the last step, or was added to it\n"
                "hint: optimizer.zero_grad() before each backward"
            )
        if add:
            self._scales.carry(view)
        write_gradient(name, gradient, view, add=add)

    def detach(self, name: str) -> None:
        """Move the gradient out of memory in which sums travel."""
        parameter = self._trained[name]
        if parameter.grad is not None:
            parameter.grad = parameter.grad.detach().clone()

    def zeroed(self, names: Iterable[str]) -> None:
        """Note that the script has filled these gradients with zeros."""
        for name in names:
            self._stepped.pop(name, None)

    def stepped(self) -> None:
        """Note that the optimizer has stepped with the gradients."""
        self._stepped = {
            name: ref(each.grad) for name, each in self._trained.items() if each.grad is not None
        }

    def forget(self) -> None:
        """Forget the gradients of the last step."""
        self._stepped = {}

    def seal(self) -> None:
        """Note the gradients as they are, which no script may change before the step."""
        self._sealed = Sealed(self._trained.values())

    def check_sealed(self) -> None:
        """Raise UsageError for the first gradient that was changed."""
        changed = None if self._sealed is None else self._sealed.changed()
        self._sealed = None
        if changed is not None:
            name = next(name for name, each in self._trained.items() if each is changed)
            raise UsageError(
                f"the gradient of `{name}` was changed between backward and step: it is this rank's own, and the mean of all "
                "ranks, which arrives later, would stay as it is\n"
                "hint: hk.clip_grad_norm_(model, …) clips both; or a plan without late gradients"
            )
