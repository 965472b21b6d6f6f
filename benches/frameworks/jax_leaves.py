"""A compiled function of JAX that only reduces leaves, and one that does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax

import hocket.jax as hk
from hocket.jax.distribute import distributed


def reducing(values: Sequence[Any]) -> tuple[Callable[[], object], Callable[[], object], int]:
    """Make both functions, and return the number of buckets of the leaves."""
    params = hk.distribute(list(values))
    reduce = hk.gradients(lambda grads: hk.mean([each + 1 for each in grads]))
    plain = jax.jit(lambda grads: [each + 1 for each in grads])
    return (
        lambda: jax.block_until_ready(reduce(params)),
        lambda: jax.block_until_ready(plain(params)),
        len(distributed().session.buckets),
    )
