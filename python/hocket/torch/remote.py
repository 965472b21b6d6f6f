"""Optimizer of parameters that are on servers: it runs there, and changes nothing here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from hocket.errors import UsageError
from hocket.refusals import GRADIENTS, SERVERS, refused
from hocket.torch import hyperparameters, optimizers
from hocket.torch.scaled_rates import as_in_step
from hocket.torch.scales import Look


class Remote:
    """Optimizer that servers run; see `hocket.training.memory.framework.Remote`."""

    def __init__(
        self, parameters: Mapping[str, torch.nn.Parameter], optimizer: torch.optim.Optimizer
    ) -> None:
        """Wrap the optimizer's `step`. `parameters`: those on servers. UsageError: servers cannot run the optimizer."""
        self._parameters, self._optimizer = dict(parameters), optimizer
        self._ended = False
        self.kind = hyperparameters.kind_of(optimizer, self._parameters.values())
        self.group_of = hyperparameters.group_of(optimizer, self._parameters)
        self.groups = hyperparameters.groups_of(optimizer)
        self._looks = Look(optimizer, _refuse_scaler)
        optimizer.step = optimizers.wrapped_step(optimizer, self._on_step)  # type: ignore[method-assign]

    def end(self) -> None:
        """Let steps be as they were."""
        self._ended = True
        self._looks.remove()

    def numbers(self) -> list[float]:
        """Return current numbers of all groups, as the next step has them."""
        with as_in_step(self._optimizer):
            return hyperparameters.numbers_of(self._optimizer, self.groups)

    def give(self, name: str, into: torch.Tensor) -> None:
        """Write the parameter's value into `into`."""
        with torch.no_grad():
            into.copy_(self._parameters[name])

    def take(self, name: str, value: torch.Tensor) -> None:
        """Set the parameter's value, also within a forward."""
        parameter = self._parameters[name]
        with optimizers.outside_forward(), torch.no_grad():
            parameter.copy_(value)
        parameter.grad = None

    def _on_step(self, plain: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self._ended:
            return plain(*args, **kwargs)
        loss = optimizers.of_closure(args, kwargs)
        local = next((name for name, each in self._parameters.items() if each.grad is not None), None)
        if local is not None:
            raise UsageError(
                f"step() with a gradient of `{local}` that was not pushed\n"
                "hint: the last backward before step() must be outside no_sync()"
            )
        plain()
        return loss


def _refuse_scaler() -> None:
    raise refused(
        SERVERS, GRADIENTS, what="a GradScaler: scaled gradients were pushed", hint="bfloat16 needs no scaler"
    )
