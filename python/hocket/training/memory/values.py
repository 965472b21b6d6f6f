"""Statistics of the numbers in a bucket's memory."""

from __future__ import annotations

import numpy as np

from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.gathered import HasRows, RowBytes

NUMPY = {"f64": np.float64, "f32": np.float32, "f16": np.float16}


def squared_norm(bucket: LoadedBucket, framework: HasRows) -> float:
    """Return the sum of the squares of a bucket's elements."""
    if bucket.sparse:
        return sum(squares(framework.rows(name, 1.0)[1].reshape(-1), bucket.dtype) for name in bucket.names)
    return squares(memoryview(bucket.memory), bucket.dtype)


def elements(bucket: LoadedBucket) -> np.ndarray:
    """Return a bucket's elements in double precision; a view if they already are."""
    return numbers(memoryview(bucket.memory), bucket.dtype).astype(np.float64, copy=False)


def squares(memory: memoryview | RowBytes, dtype: str) -> float:
    """Return the sum of the squares of the elements in a piece of memory."""
    if not len(memory):
        return 0.0
    values = numbers(memory, dtype)
    return float(np.dot(values, values))


def numbers(memory: memoryview | RowBytes, dtype: str) -> np.ndarray:
    """Return the elements in a piece of memory, in single precision at least."""
    if dtype == "bf16":
        # A bf16 is the upper half of an f32.
        return (np.frombuffer(memory, np.uint16).astype(np.uint32) << 16).view(np.float32)
    values = np.frombuffer(memory, NUMPY[dtype])
    return values.astype(np.float32) if dtype == "f16" else values
