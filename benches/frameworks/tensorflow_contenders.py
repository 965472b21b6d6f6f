"""Contenders of `python -m benches frameworks` under TensorFlow: each trains its own variables, in turns."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import hocket.tensorflow as hk
from benches.frameworks.address import own_address
from benches.frameworks.model import RATE, weights
from benches.frameworks.turns import Contender, Step
from hocket.settings import Settings
from hocket.training.process import joined

PORT = 29_712
"""Port of TensorFlow's own servers: each host of an emulation has its own network."""


def loss_of(variables: Any, x: Any) -> Any:
    for each in variables:
        x = tf.tanh(x @ each)
    return tf.reduce_mean(x**2)


def trains(variables: Any, means: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make a step of gradient descent; `means` averages a rank's own gradients."""

    def step(batch: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(variables, batch)
        for variable, grad in zip(variables, means(tape.gradient(loss, variables)), strict=True):
            variable.assign_sub(RATE * grad)
        return loss

    return step


class Ours:
    """Hocket: the three lines. A process trains one set of variables at a time, as under JAX."""

    _latest: Ours | None = None

    def __init__(self, **told: Any) -> None:
        """Begin. `told`: arguments of `distribute`."""
        self._told = told
        self._variables = [tf.Variable(each) for each in weights()]
        self._step: Any = None

    def begin(self) -> Step:
        if Ours._latest is not self or self._step is None:
            Ours._latest = self
            hk.distribute(self._variables, **self._told)
            self._step = tf.function(trains(self._variables, hk.mean))
        step = self._step

        def waited(batch: np.ndarray[Any, Any]) -> None:
            step(tf.constant(batch)).numpy()

        return waited


class Mirrored:
    """TensorFlow's own: the all-reduce of MultiWorkerMirroredStrategy in a custom loop, as a ring over gRPC."""

    def __init__(self, rank: int, world: int) -> None:
        """Start TensorFlow's servers, so this is made before all others."""
        job = joined(Settings.from_environment()).everyone
        address = f"{own_address(PORT)}:{PORT}"
        workers = job.store.gather("TensorFlow's servers", rank, world, address, job.settings.timeout_s)
        # The strategy waits for the others with the GIL, and rank 0's store answers them in Python.
        job.store.set(f"knows TensorFlow's servers/{rank}", 1)
        if rank == 0:
            for other in range(1, world):
                job.store.get(f"knows TensorFlow's servers/{other}", job.settings.timeout_s)
        task = {"type": "worker", "index": rank}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
        options = tf.distribute.experimental.CommunicationOptions(
            implementation=tf.distribute.experimental.CommunicationImplementation.RING
        )
        strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
        variables = [tf.Variable(each) for each in weights()]

        def means(grads: Any) -> Any:
            context = tf.distribute.get_replica_context()
            return context.all_reduce(tf.distribute.ReduceOp.MEAN, grads, options=options)

        step = trains(variables, means)
        self._step = tf.function(lambda batch: strategy.run(step, args=(batch,)))

    def begin(self) -> Step:
        def waited(batch: np.ndarray[Any, Any]) -> None:
            self._step(tf.constant(batch)).numpy()

        return waited


MAKERS: dict[str, Callable[[int, int], Contender]] = {
    "mirrored": Mirrored,
    "exact": lambda _rank, _world: Ours(promise="exact"),
    "rounded": lambda _rank, _world: Ours(promise="rounded"),
}
"""Makers of contenders by name, for a rank in a world; in the order in which they are made."""
