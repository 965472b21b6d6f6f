"""Learning rates that are scaled in a step alone: for the optimizer, and for servers, which are told of rates before the step."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from weakref import WeakKeyDictionary

import torch


class ScaledRates:
    """Scaled rates of one optimizer. `coming`: returns the factor of the step that comes next."""

    def __init__(self, coming: Callable[[], float]) -> None:
        """Scale nothing yet."""
        self._coming = coming
        self._applied = False

    @contextmanager
    def times(self, optimizer: torch.optim.Optimizer, factor: float) -> Iterator[None]:
        """Multiply the optimizer's rates inside."""
        rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * factor
        self._applied = True
        try:
            yield
        finally:
            self._applied = False
            for group, rate in zip(optimizer.param_groups, rates, strict=True):
                group["lr"] = rate

    @contextmanager
    def as_in_step(self, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Let the optimizer have the rates of its next step inside. In a step with a closure, it has them already."""
        if self._applied:
            yield
            return
        with self.times(optimizer, self._coming()):
            yield


_of: WeakKeyDictionary[torch.optim.Optimizer, ScaledRates] = WeakKeyDictionary()


def scale(optimizer: torch.optim.Optimizer, coming: Callable[[], float]) -> ScaledRates:
    """Scale the optimizer's rates from now on; see `ScaledRates`."""
    _of[optimizer] = ScaledRates(coming)
    return _of[optimizer]


@contextmanager
def as_in_step(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Let the optimizer have the rates of its next step inside, whether they are scaled or not."""
    if optimizer not in _of:
        yield
        return
    with _of[optimizer].as_in_step(optimizer):
        yield
