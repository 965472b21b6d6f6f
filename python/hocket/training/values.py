"""Statistics of the numbers in a bucket's memory."""

from __future__ import annotations

import numpy as np

from hocket.training.buckets import LoadedBucket

NUMPY = {"f64": np.float64, "f32": np.float32, "f16": np.float16}


def squared_norm(bucket: LoadedBucket) -> float:
    """Sum of the squares of a bucket's elements."""
    if not len(bucket.memory):
        return 0.0
    dtype = bucket.dtype
    memory = memoryview(bucket.memory)
    if dtype == "bf16":
        # The upper half of an f32.
        values = (np.frombuffer(memory, np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        values = np.frombuffer(memory, NUMPY[dtype])
        values = values.astype(np.float32) if dtype == "f16" else values
    return float(np.dot(values, values))
