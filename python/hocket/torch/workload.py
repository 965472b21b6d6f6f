"""Work of an iteration on this rank: samples of a forward, and backwards before the optimizer steps.

Schedules of merged and late gradients are made for these numbers. Only profiles, and the first iteration of a job with such a
schedule, look at them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch


class Workload:
    """Counts by hooks on a model, from now on until `stop`.

    Attributes:
        batch: first dimension of the first tensor that the last training forward was given; None: it was given none.
        samples: sum of these numbers, over all training forwards.
    """

    def __init__(self, model: torch.nn.Module, parameters: Mapping[str, torch.nn.Parameter]) -> None:
        """Hook the model. `parameters`: trained parameters, by name."""
        self.batch: int | None = None
        self.samples = 0
        self._made: Counter[str] = Counter()
        self._handles = [model.register_forward_pre_hook(self._on_forward, with_kwargs=True)]
        for name, parameter in parameters.items():
            self._handles.append(parameter.register_post_accumulate_grad_hook(self._counted(name)))

    @property
    def backwards(self) -> int:
        """Number of backwards since the last `again`: how often the gradient was made that was made most often."""
        return max(self._made.values(), default=0)

    def again(self) -> None:
        """Begin another iteration."""
        self._made.clear()

    def stop(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _on_forward(self, model: torch.nn.Module, args: Any, kwargs: Any) -> None:
        if model.training and torch.is_grad_enabled():
            self.batch = _samples([args, kwargs])
            self.samples += self.batch or 0

    def _counted(self, name: str) -> Any:
        def hook(_: torch.nn.Parameter) -> None:
            self._made[name] += 1

        return hook


def _samples(given: Any) -> int | None:
    """Return the length of the first tensor in `given` that has a dimension.

    >>> _samples([(), {"words": [torch.zeros(8, 16)]}])
    8
    """
    if isinstance(given, torch.Tensor):
        return len(given) if given.dim() else None
    if isinstance(given, Mapping):
        given = given.values()
    elif not isinstance(given, list | tuple):
        return None
    return next((found for found in map(_samples, given) if found is not None), None)
