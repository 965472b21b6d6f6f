"""Checks of distributed models before each forward and each step of an optimizer."""

from __future__ import annotations

import warnings
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from hocket.errors import UsageError
from hocket.torch.forward_hooks import before_forward
from hocket.torch.framework import Torch
from hocket.torch.optimizers import all_parameters
from hocket.torch.trainable import Trainable
from hocket.training.step.session import Session


class Watch:
    """Watch over one model: tells its session of forwards, and notices training that bypasses the session."""

    def __init__(self, framework: Torch, session: Session) -> None:
        """Watch a model that has just been distributed."""
        self._model, self._optimizer, self._session = framework.model, framework.optimizer, session
        job = session.job
        self._alone = job.world == 1
        self._division = framework.division
        self._where = f"rank {job.rank} on {job.host}"
        self._trainable = Trainable(framework.model, framework.trained.values(), self._where)
        trained = {id(each) for each in framework.trained.values()}
        self._stepped = {id(each) for each in all_parameters(framework.optimizer)} & trained
        """`id`s of the model's parameters that its optimizer steps."""
        _known.update(trained)
        self._others: WeakKeyDictionary[torch.optim.Optimizer, bool] = WeakKeyDictionary()
        """Other optimizers that have stepped → True if they step the same parameters."""
        self._began = False
        self._model.require_backward_grad_sync = True  # type: ignore[assignment]
        self._forwards: torch.utils.hooks.RemovableHandle | None = None
        # TorchScript calls no hooks: its parameters are checked when the optimizer steps.
        if not isinstance(self._model, torch.jit.ScriptModule):
            self._forwards = before_forward(self._model, self._forward)
        _alive.add(self)

    def remove(self) -> None:
        """Stop watching."""
        if self._forwards is not None:
            self._forwards.remove()
        _alive.discard(self)

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """Check an optimizer that is about to step. UsageError: its parameters are not reduced, or the session misses its steps."""
        if self._alone:
            return
        if optimizer is self._optimizer:
            self._trainable.check()
            if not self._began:
                self._began = True
                self._warn_of_others()
            return
        if optimizer not in self._others:
            self._others[optimizer] = any(id(each) in self._stepped for each in all_parameters(optimizer))
        if self._others[optimizer]:
            self._other_step(type(optimizer).__name__)

    def _other_step(self, name: str) -> None:
        """Refuse, or finish the reductions for, a step of another optimizer over the distributed one's parameters."""
        session = self._session
        if session.counts_steps:
            raise UsageError(
                f"{self._where}: another {name} steps the parameters of {type(self._model).__name__} than the optimizer with which "
                "the model was distributed, whose steps are counted\n"
                "hint: model, optimizer = hk.distribute(model, optimizer) again, on all ranks, with that one"
            )
        # Gates defer only the steps of their own optimizer.
        session.finish_step()

    def _warn_of_others(self) -> None:
        # Within a step, parts that this rank owns stand for their parameters.
        known = _known | self._division.parts()
        others = [
            each
            for each in all_parameters(self._optimizer)
            if each.grad is not None and id(each) not in known
        ]
        if others:
            warnings.warn(
                f"{self._where}: the optimizer also steps {len(others)} parameters that are of no distributed model, the first of "
                f"shape {list(others[0].shape)}: each rank has its own gradients of them\n"
                "hint: make them part of the model, such as the parameters of a loss",
                RuntimeWarning,
                stacklevel=2,
            )

    def _forward(self) -> None:
        # A compiled forward cannot call this: then the optimizer's step makes the check.
        if torch.compiler.is_compiling():
            return
        if not torch.is_grad_enabled():
            self._session.job.progress.evaluates()
            return
        if not self._alone:
            self._trainable.check()
        self._session.forward_begins(syncs=bool(self._model.require_backward_grad_sync))


_alive: WeakSet[Watch] = WeakSet()
_known: set[int] = set()
"""`id`s of parameters that all ranks have ever trained together; a weak reference would keep a parameter from being swapped."""


def _before_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if not torch.compiler.is_compiling():
        for watch in tuple(_alive):
            watch.step(optimizer)


# This hook reads nothing of a step that gates defer.
_before_step.reads_nothing = True  # type: ignore[attr-defined]
register_optimizer_step_pre_hook(_before_step)
