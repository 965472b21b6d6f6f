"""Keras on TensorFlow: the optimizer applies means, which leave as backward makes the gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hocket.tensorflow as adapted
from hocket.job.rendezvous import Job
from hocket.refusals import ABLE, check_able
from hocket.tensorflow.distribute import check_runtime, distributed, train
from hocket.tensorflow.means import mean_of
from hocket.tensorflow.variables import Variables


def distribute(model: Any, **options: Any) -> None:
    """See `hocket.keras.distribute`."""
    if model.jit_compile and not model.run_eagerly:
        check_able("TensorFlow", ABLE - {"compiled"}, [("jit_compile=True", {})])
    optimizer = model.optimizer
    check_runtime()
    trained = list(model.trainable_variables)
    known = {id(each) for each in trained}
    # The state of random numbers is left out: it may differ by rank.
    also = [each for each in [*model.weights, *optimizer.variables] if id(each) not in known]
    train(Variables(trained, also), **options)
    apply = optimizer.apply

    def apply_means(grads: Any, trainable_variables: Any = None) -> None:
        variables = list(model.trainable_variables if trainable_variables is None else trainable_variables)
        apply(mean_of(list(grads), variables), variables)

    optimizer.apply = apply_means
    # A function traced before would apply gradients of this rank alone.
    model.train_function = None


def adapter(name: str) -> Callable[..., Any]:
    """Return the function of that name in `hocket.tensorflow`."""
    found: Callable[..., Any] = getattr(adapted, name)
    return found


def job() -> Job:
    """Return the job that trains. UsageError: nothing is distributed."""
    return distributed().session.job
