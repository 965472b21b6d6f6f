"""Keras on PyTorch: the model is a module, whose gradients are means when backward ends; its optimizer poses as one of PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch

import hocket.torch as hk
from hocket.artefacts.plan import Plan
from hocket.artefacts.promise import Promise
from hocket.errors import UsageError
from hocket.job.rendezvous import Job
from hocket.policy.policy import Policy
from hocket.refusals import ABLE, GATES, KERAS, TURNS, check_able
from hocket.settings import Settings
from hocket.torch.in_training import distributed_of
from hocket.training.assemble.asked import policy_asked, promise_asked
from hocket.training.features import of_plan, of_settings


class Stepper(torch.optim.Optimizer):
    """Optimizer that steps as Keras' does; its state is the variables of Keras' optimizer, and the model's untrained weights."""

    def __init__(self, model: Any) -> None:
        """Take a model that is compiled and built."""
        trained = {id(each): each for each in model.trainable_variables}
        super().__init__([each.value for each in trained.values()], {})
        others = [*model.weights, *model.optimizer.variables]
        self._variables = [each for each in others if id(each) not in trained]
        self._apply = model.optimizer.apply
        self._given: tuple[Any, ...] = ()
        # An optimizer without state sends none.
        self.state.update({each.value: {} for each in self._variables})

    def apply(self, *given: Any) -> None:
        """Step with the given arguments, in place of Keras' own method."""
        self._given = given
        self.step()

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]  # Keras gives none
        """Apply the arguments that Keras has given."""
        del closure
        self._apply(*self._given)

    def state_dict(self) -> dict[str, Any]:
        """Return values of the variables."""
        return {"variables": [each.value.detach() for each in self._variables]}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Load another rank's values."""
        for variable, value in zip(self._variables, state_dict["variables"], strict=True):
            variable.assign(value)


def distribute(
    model: Any,
    *,
    plan: Plan | None,
    policy: Policy | None,
    promise: Promise | str | None,
    settings: Settings | None,
) -> None:
    """See `hocket.keras.distribute`."""
    global _model  # noqa: PLW0603  # a process trains one
    settings = settings or Settings.from_environment()
    _check(model, plan, policy_asked(plan, policy, settings), promise, settings)
    known = {id(each) for each in model.weights}
    # Counters of random numbers, which stay each rank's own.
    own = [(each, each.value.detach().clone()) for each in model.variables if id(each) not in known]
    stepper = Stepper(model)
    hk.distribute(model, stepper, plan=plan, policy=policy, promise=promise, settings=settings)
    for variable, value in own:
        variable.assign(value)
    model.optimizer.apply = stepper.apply
    # Keras' own method would have each backward make its gradients in new memory.
    model.zero_grad = stepper.zero_grad
    _model = model


def _check(
    model: Any,
    plan: Plan | None,
    policy: Policy | None,
    promise: Promise | str | None,
    settings: Settings,
) -> None:
    """Raise UsageError for options that need an optimizer of PyTorch's, or one that other ranks can run."""
    asked = promise_asked(promise, settings)
    wanted = [*of_settings(settings), *(() if plan is None else of_plan(plan))]
    wanted += [("jit_compile=True", {})] if model.jit_compile else []
    wanted += [(TURNS, {})] if asked is not None and asked.turns else []
    wanted += [(GATES, {})] if policy is not None and policy.gates else []
    check_able(KERAS, ABLE - {"members", "optimizer", "compiled"}, wanted)


_model: Any = None


def adapter(name: str) -> Callable[..., Any]:
    """Return the function of that name in `hocket.torch`, for the model that is trained. UsageError: no model is trained."""
    if _model is None:
        raise UsageError("nothing is distributed\nhint: hk.distribute(model) first")
    return functools.partial(getattr(hk, name), _model)


def job() -> Job:
    """Return the job that trains. UsageError: nothing is distributed."""
    if _model is None:
        raise UsageError("nothing is distributed\nhint: hk.distribute(model) first")
    return distributed_of(_model).session.job
