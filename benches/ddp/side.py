"""One side of a comparison: the same training with DDP or with Hocket, behind one interface."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

import hocket.torch as hk

Kind = Literal["ddp", "hocket"]
MakeOptimizer = Callable[[Any], torch.optim.Optimizer]


def sgd(parameters: Any, **options: Any) -> torch.optim.Optimizer:
    """Optimizer for ways of training that are not about optimizers."""
    return torch.optim.SGD(parameters, lr=0.05, momentum=0.9, weight_decay=1e-3, **options)


@dataclass
class Trained:
    """A model in training; `module` is the user's own, `model` is called."""

    model: nn.Module
    module: nn.Module
    optimizer: torch.optim.Optimizer
    kind: Kind

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        found: contextlib.AbstractContextManager[None] = self.model.no_sync()  # type: ignore[operator]
        return found

    def join(self, **options: bool) -> contextlib.AbstractContextManager[Any]:
        """Context for unequal numbers of batches."""
        if self.kind == "hocket":
            return hk.join(self.model, **options)
        assert isinstance(self.model, nn.parallel.DistributedDataParallel)  # noqa: S101
        found: contextlib.AbstractContextManager[None] = self.model.join(**options)
        return found

    def step(self, loss: torch.Tensor) -> None:
        """Finish a step in the usual way."""
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


@dataclass
class Side:
    """Factory of models and batches; the same on both sides, with different batches on each rank. `where`: device of both."""

    kind: Kind
    rank: int
    generator: torch.Generator
    where: torch.device
    started: list[Trained] = field(default_factory=list)

    def start(
        self,
        module: nn.Module,
        make: MakeOptimizer = sgd,
        *,
        of: Callable[[nn.Module], Any] = lambda module: module.parameters(),
        call: Callable[[nn.Module], nn.Module] = lambda module: module,
        buffers: Literal["after_step", "before_forward", "none"] = "after_step",
        **ddp_options: Any,
    ) -> Trained:
        """Distribute `module` with an optimizer made of `of(module)`; `call(model)` is then called in its place."""
        if self.where.type != "cpu":
            # Parameters that two layers share stay shared on their way to a device of an extension only so.
            torch.__future__.set_swap_module_params_on_conversion(True)
            module.to(self.where)
            torch.__future__.set_swap_module_params_on_conversion(False)
        optimizer = make(of(module))
        model: nn.Module
        if self.kind == "hocket":
            model, optimizer = hk.distribute(module, optimizer, buffers=buffers)
        else:
            if buffers == "none":
                ddp_options["broadcast_buffers"] = False
            model = nn.parallel.DistributedDataParallel(module, **ddp_options)
        trained = Trained(call(model), module, optimizer, self.kind)
        self.started.append(trained)
        return trained

    def batch(self, *shape: int) -> torch.Tensor:
        """Draw a batch of normal numbers."""
        return torch.randn(*shape, generator=self.generator).to(self.where)

    def batches(self, count: int, *shape: int) -> Iterator[torch.Tensor]:
        for _ in range(count):
            yield self.batch(*shape)

    def words(self, *shape: int, below: int = 20) -> torch.Tensor:
        return torch.randint(0, below, shape, generator=self.generator).to(self.where)
