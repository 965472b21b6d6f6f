"""Rows `adapter-FRAMEWORK`: the cost of passing a leaf to the engine and of taking its mean back, on one rank, without traffic."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import numpy as np

from benches.row import Row
from hocket.tools.bench.alternate import alternate

LEAVES, ROUNDS = 160, 40
SIZES_BYTES = (4 << 10, 1 << 20)
LEAF_US = 10.0
BUCKET_US = 25.0


def rows(framework: str) -> Iterator[Row]:
    """Rows for small and large leaves: the whole cost, and the cost without the two copies that a leaf needs. Under TensorFlow,
    also for a bucket."""
    name = f"adapter-{framework}"
    for size in SIZES_BYTES:
        whole_us, beside_us, buckets = per_leaf_us(framework, size)
        title = f"a leaf of {size >> 10} KB"
        yield Row.over(whole_us, name=name, what=f"{title}, given and taken back", unit="µs")
        target = LEAF_US if framework == "jax" else None
        yield Row.over(beside_us, name=name, what=f"{title}, beside two copies", target=target, unit="µs")
        if framework == "tensorflow":
            leaves = LEAVES / buckets
            yield Row.over(
                [leaf_us * leaves for leaf_us in beside_us],
                name=name,
                what=f"a bucket of {leaves:.3g} such leaves, beside two copies",
                target=BUCKET_US,
                unit="µs",
            )


def per_leaf_us(framework: str, size_bytes: int) -> tuple[list[float], list[float], int]:
    """Microseconds per leaf by round, of a function that only reduces against one that does not; the same less copies of each leaf
    in both directions; and the number of buckets."""
    values = [np.zeros(size_bytes // 4, np.float32) for _ in range(LEAVES)]
    into = [np.empty_like(each) for each in values]
    # Loads the framework.
    module = importlib.import_module(f"benches.frameworks.{framework}_leaves")
    reduce, plain, buckets = module.reducing(values)

    def copy() -> None:
        # All there before the first comes back, as in a step: leaf by leaf, the second copy would find both in the caches.
        for source, target in zip(values, into, strict=True):
            np.copyto(target, source)
        for source, target in zip(values, into, strict=True):
            np.copyto(source, target)

    times_s = alternate({"reduce": reduce, "plain": plain, "copy": copy}, rounds=ROUNDS)
    rounds = list(zip(times_s["reduce"], times_s["plain"], times_s["copy"], strict=True))
    whole_us = [1e6 * (reduced - computed) / LEAVES for reduced, computed, _ in rounds]
    beside_us = [1e6 * (reduced - computed - copied) / LEAVES for reduced, computed, copied in rounds]
    return whole_us, beside_us, buckets
