"""What a leaf costs beside its copies: one rank, whose programs have nothing to send.

`python -m benches.frameworks.adapter` prints microseconds per leaf.
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

import jax
import numpy as np

import hocket.jax as hk

LEAVES = 160
SIZES_BYTES = (4 << 10, 1 << 20)
CALLS = 40


def per_leaf_us(size_bytes: int) -> float:
    """Of a function that only reduces, against one that copies each leaf twice."""
    values = [np.zeros(size_bytes // 4, np.float32) for _ in range(LEAVES)]
    params = hk.distribute(values)
    reduce = hk.gradients(lambda grads: hk.mean([each + 1 for each in grads]))
    into = [np.empty_like(each) for each in values]

    def copy() -> None:
        for source, target in zip(values, into, strict=True):
            np.copyto(target, source)
            np.copyto(source, target)

    plain = jax.jit(lambda grads: [each + 1 for each in grads])
    times = {
        "reduce": _time(lambda: reduce(params)),
        "plain": _time(lambda: plain(params)),
        "copy": _time(copy),
    }
    return 1e6 * (times["reduce"] - times["plain"] - times["copy"]) / LEAVES


def _time(call: Any) -> float:
    jax.block_until_ready(call())
    seen = []
    for _ in range(CALLS):
        began_s = time.perf_counter()
        jax.block_until_ready(call())
        seen.append(time.perf_counter() - began_s)
    return median(seen)


def of_all() -> dict[int, float]:
    """By size of a leaf."""
    return {size: per_leaf_us(size) for size in SIZES_BYTES}
