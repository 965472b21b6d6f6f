"""Training with JAX: run it with `hocket run -n 2 examples/train_jax.py`, or alone.

What Hocket needs: `distribute`, `gradients` in place of `jax.jit`, and `mean`. The update is a function of its own, to which the
old parameters are donated.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import hocket.jax as hk

STEPS, BATCH, WIDTH = 100, 32, 64


def loss_of(params, batch):
    """Of some layers that learn a sine."""
    x, target = batch
    for layer in params:
        x = jnp.tanh(x @ layer["weight"] + layer["bias"])
    return jnp.mean((x - target) ** 2)


def batch_of(rank, step):
    """Another one on each rank."""
    x = np.random.default_rng([rank, step]).normal(size=(BATCH, WIDTH)).astype(np.float32)
    return x, np.sin(x)


def layer(key):
    """Of some layers."""
    return {"weight": jax.random.normal(key, (WIDTH, WIDTH)) / WIDTH**0.5, "bias": jnp.zeros(WIDTH)}


params = hk.distribute([layer(key) for key in jax.random.split(jax.random.key(0), 3)])
optimizer = optax.adam(3e-3)
state = optimizer.init(params)


@hk.gradients
def gradients(params, batch):
    """The loss of this rank, and the means of all ranks' gradients."""
    loss, grads = jax.value_and_grad(loss_of)(params, batch)
    return loss, hk.mean(grads)


def update(params, state, grads):
    """A step of the optimizer."""
    updates, state = optimizer.update(grads, state, params)
    return optax.apply_updates(params, updates), state


update = jax.jit(update, donate_argnums=(0, 1))

for step in range(STEPS):
    loss, grads = gradients(params, batch_of(hk.rank(), step))
    params, state = update(params, state, grads)
    if step % 20 == 0 and hk.rank() == 0:
        print(f"step {step}: loss {float(loss):.4f}")

checksum = sum(float(jnp.sum(jnp.abs(each))) for each in jax.tree_util.tree_leaves(params))
print(f"rank {hk.rank()} of {hk.world()}: {checksum:.6f}")
