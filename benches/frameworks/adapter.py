"""The row `adapter`: what it costs to hand a leaf to the engine and to take its mean back, on one rank, which sends nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

import hocket.jax as hk
from benches.row import Row
from hocket.bench.alternate import alternate

LEAVES, ROUNDS = 160, 40
SIZES_BYTES = (4 << 10, 1 << 20)


def rows() -> Iterator[Row]:
    """Of small and of large leaves: all of it, and what is left without the two copies that a leaf needs."""
    for size in SIZES_BYTES:
        whole_us, beside_us = per_leaf_us(size)
        title = f"a leaf of {size >> 10} KB"
        yield Row.over(whole_us, name="adapter", what=f"{title}, given and taken back", unit="µs")
        yield Row.over(beside_us, name="adapter", what=f"{title}, beside two copies", target=10.0, unit="µs")


def per_leaf_us(size_bytes: int) -> tuple[list[float], list[float]]:
    """By round: of a function that only reduces, against one that does not, and beside copies of each leaf there and back."""
    values = [np.zeros(size_bytes // 4, np.float32) for _ in range(LEAVES)]
    params = hk.distribute(values)
    into = [np.empty_like(each) for each in values]
    reduce = hk.gradients(lambda grads: hk.mean([each + 1 for each in grads]))
    plain = jax.jit(lambda grads: [each + 1 for each in grads])

    def copy() -> None:
        # All there before the first comes back, as in a step: leaf by leaf, the second copy would find both in the caches.
        for source, target in zip(values, into, strict=True):
            np.copyto(target, source)
        for source, target in zip(values, into, strict=True):
            np.copyto(source, target)

    contenders: dict[str, Any] = {
        "reduce": lambda: jax.block_until_ready(reduce(params)),
        "plain": lambda: jax.block_until_ready(plain(params)),
        "copy": copy,
    }
    times_s = alternate(contenders, rounds=ROUNDS)
    rounds = list(zip(times_s["reduce"], times_s["plain"], times_s["copy"], strict=True))
    whole_us = [1e6 * (reduced - computed) / LEAVES for reduced, computed, _ in rounds]
    beside_us = [1e6 * (reduced - computed - copied) / LEAVES for reduced, computed, copied in rounds]
    return whole_us, beside_us
