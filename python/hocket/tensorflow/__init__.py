"""Hocket for TensorFlow: gradients leave while backward computes, in a `tf.function` and out of it.

import hocket.tensorflow as hk

hk.distribute(variables)

@tf.function
def step(batch):
    with tf.GradientTape() as tape:
        loss = loss_of(batch)
    grads = hk.mean(tape.gradient(loss, variables))
    optimizer.apply_gradients(zip(grads, variables))
"""

from hocket import extras

extras.need("tensorflow", "hocket.tensorflow")

from hocket.artefacts.promise import Promise  # noqa: E402  # what comes next loads tensorflow
from hocket.tensorflow.checkpoint import load_state_dict, state_dict  # noqa: E402
from hocket.tensorflow.distribute import agreed, distribute, log, rank, record, world  # noqa: E402
from hocket.tensorflow.means import mean  # noqa: E402
from hocket.tensorflow.tape import DistributedGradientTape  # noqa: E402

__all__ = [
    "DistributedGradientTape",
    "Promise",
    "agreed",
    "distribute",
    "load_state_dict",
    "log",
    "mean",
    "rank",
    "record",
    "state_dict",
    "world",
]
