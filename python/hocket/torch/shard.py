"""A parameter server's part of a parameter, updated by an optimizer of `torch.optim`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from hocket.torch.dtypes import TORCH_DTYPES
from hocket.torch.hyperparameters import one_parameter


class Shard:
    """Part of a parameter; see `hocket.training.servers.serve.Shard`."""

    def __init__(self, optimizer: str, dtype: str, elements: int, options: Mapping[str, Any]) -> None:
        """Start with zeros. `optimizer`: name of a class of `torch.optim`."""
        self._value = torch.nn.Parameter(torch.zeros(elements, dtype=TORCH_DTYPES[dtype], device="cpu"))
        self._gradient = torch.zeros_like(self._value)
        self._value.grad = self._gradient
        self._optimizer = one_parameter(optimizer, self._value, dict(options))

    def set(self, values: memoryview) -> None:
        """Set the first values."""
        with torch.no_grad():
            self._value.copy_(self._of(values))

    def set_options(self, options: Mapping[str, Any]) -> None:
        """Set the options from now on."""
        self._optimizer.param_groups[0].update(options)

    def update(self, gradients: Sequence[memoryview], divisor: int) -> None:
        """Take one step with the sum of the gradients over `divisor`."""
        self._gradient.copy_(self._of(gradients[0]))
        for each in gradients[1:]:
            self._gradient.add_(self._of(each))
        self._gradient.div_(divisor)
        self._optimizer.step()

    def copy_into(self, memory: memoryview) -> None:
        """Copy the current values into `memory`."""
        self._of(memory).copy_(self._value.detach())

    def _of(self, memory: memoryview) -> torch.Tensor:
        return torch.frombuffer(memory, dtype=self._value.dtype)
