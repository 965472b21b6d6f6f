"""Definitions of the measured collectives: each rank's contents before and after, and the number of bytes that must move.

Values are small integers, so that sums are exact in every element type and in every order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Elements = npt.NDArray[np.generic]

DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}
"""Element types that every contender supports, by NumPy's names."""
ROOT = 0
PATTERN = 61
"""Period of the elements: a prime, so that swapped pieces of round sizes are noticed."""

BUS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda _: 1.0,
    "reduce": lambda _: 1.0,
}
"""Collectives, and by number of ranks the share of the size that each rank's link must carry.

nccl-tests, doc/PERFORMANCE.md: size over time is the algorithm bandwidth; times this share it is the bus bandwidth, which is
comparable with the hardware for any number of ranks. As there, size is that of a rank's whole buffer: the output of an all-gather,
the input of a reduce-scatter.
"""


def elements_of(size_bytes: int, dtype: str, world: int) -> int:
    """Return the largest number of elements that fits, in `world` equal parts; at least one each."""
    return max(1, size_bytes // np.dtype(DTYPES[dtype]).itemsize // world) * world


def own_part(elements: Elements, rank: int, world: int) -> Elements:
    """Return the part that belongs to `rank`."""
    part = len(elements) // world
    return elements[rank * part : (rank + 1) * part]


def given(elements: int, dtype: str, rank: int) -> Elements:
    """Return the contents of `rank`'s buffer before the call."""
    return (np.arange(elements) % PATTERN + rank).astype(DTYPES[dtype])


def wrong_elements(what: str, result: Elements, *, rank: int, world: int) -> int:
    """Return the number of wrong elements in `rank`'s buffer after the collective `what` of everyone's `given`.

    Undefined elements do not count: others' parts after a reduce-scatter, buffers beside the root's after a reduce.

    >>> wrong_elements("broadcast", given(8, "f32", ROOT), rank=1, world=2)
    0
    """
    total, dtype = len(result), next(name for name, kind in DTYPES.items() if result.dtype == kind)
    match what:
        case "all_reduce":
            return _differ(result, _sum(total, dtype, world))
        case "reduce":
            return _differ(result, _sum(total, dtype, world)) if rank == ROOT else 0
        case "reduce_scatter":
            summed = _sum(total, dtype, world)
            return _differ(own_part(result, rank, world), own_part(summed, rank, world))
        case "all_gather":
            pieces = [own_part(given(total, dtype, each), each, world) for each in range(world)]
            return _differ(result, np.concatenate(pieces))
        case "all_to_all":
            pieces = [own_part(given(total, dtype, each), rank, world) for each in range(world)]
            return _differ(result, np.concatenate(pieces))
        case "broadcast":
            return _differ(result, given(total, dtype, ROOT))
    raise ValueError(what)


def _sum(elements: int, dtype: str, world: int) -> Elements:
    ones = world * (np.arange(elements) % PATTERN) + world * (world - 1) // 2
    return ones.astype(DTYPES[dtype])


def _differ(result: Elements, expected: Elements) -> int:
    return int(np.count_nonzero(result != expected))
