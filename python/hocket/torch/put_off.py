"""What a script has called and gates put off: a step of the optimizer, and zeroing gradients after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from hocket.torch import optimizers


class PutOff:
    """Until each bucket's gate opens. A gradient that is zeroed to None is None at once for whoever looks, and is there again when
    its parameter is stepped."""

    def __init__(self, zeroed: Callable[[Iterable[torch.Tensor]], None] | None) -> None:
        """Nothing is. `zeroed`: told of parameters whose gradients were filled with zeros."""
        self.step: optimizers.Step | None = None
        self._zeroed = zeroed
        self._kept: dict[int, torch.Tensor | None] = {}
        """By a parameter's `id`: its gradient, while that is None for others."""
        self._after: dict[int, torch.Tensor | None] = {}
        """By a parameter's `id`: its gradient when it is stepped."""
        self._zeros: set[int] = set()
        """Parameters whose gradients are filled with zeros then."""

    def zero(self, parameters: Iterable[torch.Tensor], set_to_none: bool) -> None:
        """As `zero_grad` of these, which wait for their step."""
        for each in parameters:
            if not set_to_none:
                self._zeros.add(id(each))
            elif id(each) in self._kept:
                each.grad = None
            else:
                self._kept[id(each)], each.grad = each.grad, None

    def restore(self, parameters: Iterable[torch.Tensor]) -> None:
        """Their gradients are about to be reduced and stepped."""
        for each in parameters:
            if id(each) in self._kept:
                # What a script has put there since is for the next step.
                self._after[id(each)], each.grad = each.grad, self._kept.pop(id(each))

    def apply(self, bucket: int, parameters: Iterable[torch.Tensor]) -> bool:
        """Their gradients are reduced: run what was put off. They are zeroed even if the step fails, as the caller of `zero_grad`
        assumes. Whether it stepped."""
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
