"""`distribute`, which makes a Keras model train together with those of the other ranks, through its backend's adapter."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import keras

from hocket.artefacts.plan import Plan
from hocket.artefacts.promise import Promise
from hocket.errors import UsageError
from hocket.job.rendezvous import Job
from hocket.policy.policy import Policy
from hocket.settings import Settings

Model = TypeVar("Model", bound=keras.Model)

BACKENDS = ("tensorflow", "jax", "torch")


def distribute(
    model: Model,
    *,
    plan: Plan | None = None,
    policy: Policy | None = None,
    promise: Promise | str | None = None,
    settings: Settings | None = None,
) -> Model:
    """Train `model` together with the other ranks of the job; `fit` stays as it is, each rank with data of its own.

    All ranks start from rank 0's weights and variables of the optimizer; the state of random numbers stays each rank's own. From
    then on the optimizer applies the means over all ranks. A process trains one model at a time: a further call takes the
    place of the one before.

    Args:
        model: a compiled and built model, with the trainable variables that it is to have.
        plan: as in `hocket.tensorflow.distribute`, like all below.
        policy: decides how gradients travel, instead of a plan.
        promise: how far results may be from exact means.
        settings: settings of the job; default: from the environment.

    Returns the model.

    Raises:
        RendezvousError: ranks do not meet, or their models differ.
        UsageError: the model is not compiled or built, or asks for what Hocket does not do: another backend, `jit_compile=True`
            with TensorFlow or PyTorch, `keras.distribution`.
        ArtefactError, PolicyError: as in the backend's adapter.

    >>> import keras
    >>> model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    >>> model.compile("sgd", "mse")
    >>> distribute(model).count_params()
    8
    """
    _check(model)
    _backend().distribute(model, plan=plan, policy=policy, promise=promise, settings=settings)
    model.compile = _refuse_compile
    return model


def _check(model: Any) -> None:
    backend = keras.backend.backend()
    if backend not in BACKENDS:
        raise UsageError(
            f"hocket.keras trains on {', '.join(BACKENDS)}, and Keras runs on {backend}\nhint: KERAS_BACKEND=tensorflow"
        )
    if keras.distribution.distribution() is not None:
        raise UsageError(
            "keras.distribution is set, which shards the model over devices of one process\n"
            "hint: without keras.distribution.set_distribution; a rank has one device"
        )
    if not model.compiled or model.optimizer is None:
        raise UsageError("the model has no optimizer\nhint: model.compile(…) before hk.distribute(model)")
    if not model.built:
        raise UsageError(
            "the model has no weights yet\nhint: model.build(input_shape) before hk.distribute(model)"
        )
    model.optimizer.build(model.trainable_variables)


def _refuse_compile(*_arguments: Any, **_named: Any) -> NoReturn:
    raise UsageError(
        "the model is distributed, and another optimizer would train each rank alone\n"
        "hint: model.compile(…) before hk.distribute(model)"
    )


def job() -> Job:
    """Return the job that trains the model. UsageError: no model is distributed."""
    return _backend().job()  # type: ignore[no-any-return]


def _backend() -> Any:
    """Load the backend's module, which loads its adapter and the framework."""
    return importlib.import_module(f"hocket.keras.on_{keras.backend.backend()}")


def _of_adapter(name: str) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        return _backend().adapter(name)(*arguments, **named)

    call.__name__ = name
    call.__doc__ = f"As `hocket.tensorflow.{name}` and `hocket.jax.{name}`; on PyTorch `hocket.torch.{name}` of the model."
    return call


agreed = _of_adapter("agreed")
load_state_dict = _of_adapter("load_state_dict")
log = _of_adapter("log")
rank = _of_adapter("rank")
record = _of_adapter("record")
state_dict = _of_adapter("state_dict")
world = _of_adapter("world")
