"""The model of `python -m benches frameworks`, in plain JAX: square layers."""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

WIDTH, LAYERS = 768, 8


def parameters() -> list[jax.Array]:
    """The same on all ranks."""
    random = np.random.default_rng(0)
    made = (random.normal(size=(WIDTH, WIDTH)) / WIDTH**0.5 for _ in range(LAYERS))
    return [jnp.asarray(each.astype(np.float32)) for each in made]


def batch_of(random: np.random.Generator, samples: int) -> np.ndarray[Any, Any]:
    """A rank's own."""
    return random.normal(size=(samples, WIDTH)).astype(np.float32)


def loss(params: Any, x: Any) -> Any:
    """Of one batch."""
    for each in params:
        x = jnp.tanh(x @ each)
    return jnp.mean(x**2)


@functools.partial(jax.jit, donate_argnums=0)
def update(params: Any, grads: Any) -> Any:
    """A step of gradient descent."""
    return [each - 0.01 * grad for each, grad in zip(params, grads, strict=True)]
