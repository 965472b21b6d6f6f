"""Hocket for JAX: gradients leave while backward computes, out of one compiled function.

import hocket.jax as hk

params = hk.distribute(params)

@hk.gradients
def gradients(params, batch):
    loss, grads = jax.value_and_grad(loss_of)(params, batch)
    return loss, hk.mean(grads)
"""

from hocket import extras

extras.need("jax", "hocket.jax")

from hocket.artefacts.promise import Promise  # noqa: E402  # what comes next loads jax
from hocket.jax.checkpoint import load_state_dict, state_dict  # noqa: E402
from hocket.jax.distribute import agreed, distribute, log, rank, record, world  # noqa: E402
from hocket.jax.means import all_reduce_gradients, gradients, mean  # noqa: E402

__all__ = [
    "Promise",
    "agreed",
    "all_reduce_gradients",
    "distribute",
    "gradients",
    "load_state_dict",
    "log",
    "mean",
    "rank",
    "record",
    "state_dict",
    "world",
]
