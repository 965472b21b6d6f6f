"""Keras on JAX: its compiled step becomes one that `hocket.jax.gradients` compiles, in which the optimizer applies means."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import hocket.jax as adapted
from hocket.errors import UsageError
from hocket.jax.distribute import distributed, train
from hocket.jax.leaves import Leaves
from hocket.jax.means import gradients, mean
from hocket.job.rendezvous import Job
from hocket.training.memory.compiled_model import unlike


def distribute(model: Any, **options: Any) -> None:
    """See `hocket.keras.distribute`."""
    if model.run_eagerly or not model.jit_compile:
        raise UsageError(
            "the model is not compiled by XLA, and Hocket reduces gradients in compiled functions of JAX\n"
            "hint: model.compile(…, jit_compile=True, run_eagerly=False)"
        )
    optimizer = model.optimizer
    trained = list(model.trainable_variables)
    known = {id(each) for each in trained}
    also = [each for each in [*model.weights, *optimizer.variables] if id(each) not in known]
    names = unlike([each.path for each in [*trained, *also]])
    # A list: a dictionary would be flattened in the order of its keys.
    leaves = Leaves(
        [each.value for each in trained],
        {name: each.value for name, each in zip(names[len(trained) :], also, strict=True)},
    )
    leaves.names[: len(trained)] = names[: len(trained)]
    train(leaves, **options)
    for variable, value in zip([*trained, *also], leaves.arrays, strict=True):
        variable.assign(value)
    apply = optimizer.stateless_apply

    def apply_means(optimizer_variables: Any, grads: Any, trainable_variables: Any) -> Any:
        return apply(optimizer_variables, mean(list(grads)), trainable_variables)

    optimizer.stateless_apply = apply_means
    step = gradients(model.train_step, donate_argnums=0)

    def steps(state: Any, iterator: Iterator[Any]) -> Any:
        logs, state = step(state, next(iterator))
        for _ in range(model.steps_per_execution - 1):
            try:
                data = next(iterator)
            except StopIteration:
                break
            logs, state = step(state, data)
        return logs, state

    model.train_function = steps
    model.make_train_function = _keep


def _keep(**_options: Any) -> None:
    """Keep the train function: Keras would make its own, whose steps have no turns."""


def adapter(name: str) -> Callable[..., Any]:
    """Return the function of that name in `hocket.jax`."""
    found: Callable[..., Any] = getattr(adapted, name)
    return found


def job() -> Job:
    """Return the job that trains. UsageError: nothing is distributed."""
    return distributed().session.job
