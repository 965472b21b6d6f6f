"""Calls of a script that gates defer: a step of the optimizer, and zeroing gradients after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from hocket.torch import optimizers


class PutOff:
    """Calls deferred until each bucket's gate opens. A gradient that is zeroed to None reads as None at once, and is there again
    when its parameter is stepped."""

    def __init__(self, zeroed: Callable[[Iterable[torch.Tensor]], None] | None) -> None:
        """Start with nothing deferred. `zeroed`: called with parameters whose gradients were filled with zeros."""
        self.step: optimizers.Step | None = None
        self._zeroed = zeroed
        self._kept: dict[int, torch.Tensor | None] = {}
        """`id` of a parameter → its gradient, while others read None."""
        self._after: dict[int, torch.Tensor | None] = {}
        """`id` of a parameter → its gradient after the step."""
        self._zeros: set[int] = set()
        """`id`s of parameters whose gradients are filled with zeros after the step."""

    def zero(self, parameters: Iterable[torch.Tensor], set_to_none: bool) -> None:
        """Defer `zero_grad` of these parameters, which wait for their step."""
        for each in parameters:
            if not set_to_none:
                self._zeros.add(id(each))
            elif id(each) in self._kept:
                each.grad = None
            else:
                self._kept[id(each)], each.grad = each.grad, None

    def restore(self, parameters: Iterable[torch.Tensor]) -> None:
        """Restore gradients that are about to be reduced and stepped."""
        for each in parameters:
            if id(each) in self._kept:
                # A gradient that a script has put there since is for the next step.
                self._after[id(each)], each.grad = each.grad, self._kept.pop(id(each))

    def apply(self, bucket: int, parameters: Iterable[torch.Tensor]) -> bool:
        """Run what was deferred, once gradients are reduced; return whether a step ran. Gradients are zeroed even if the step
        fails, as the caller of `zero_grad` assumes."""
        try:
            return self.step is not None and self.step.apply(bucket)
        finally:
            if self._zeros or self._after:
                with optimizers.outside_forward():
                    self._zero(parameters)

    def _zero(self, parameters: Iterable[torch.Tensor]) -> None:
        zeros = []
        for each in parameters:
            if id(each) in self._after:
                each.grad = self._after.pop(id(each))
            elif id(each) in self._zeros:
                zeros.append(each)
        optimizers.zero(zeros, set_to_none=False)
        if zeros and self._zeroed is not None:
            self._zeroed(zeros)
