"""The collectives that are measured: what each rank holds before and after, and how many bytes must move.

Values are small integers, so that sums are exact in every element type and in every order of adding.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Elements = npt.NDArray[np.generic]

DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}
"""Element types that every contender has, as NumPy has them."""
ROOT = 0
PATTERN = 61
"""Elements repeat after so many: a prime, so that pieces of round sizes that change places are noticed."""

BUS: dict[str, Callable[[int], float]] = {
    "all_reduce": lambda n: 2 * (n - 1) / n,
    "reduce_scatter": lambda n: (n - 1) / n,
    "all_gather": lambda n: (n - 1) / n,
    "all_to_all": lambda n: (n - 1) / n,
    "broadcast": lambda _: 1.0,
    "reduce": lambda _: 1.0,
}
"""The collectives, and by number of ranks the share of the size that each rank's link must carry.

nccl-tests, doc/PERFORMANCE.md: size over time is the algorithm bandwidth; times this share it is the bus bandwidth, which compares
with the hardware whatever the number of ranks. As there, size is that of a rank's whole buffer: what an all-gather gives it, what
it gives to a reduce-scatter.
"""


def elements_of(size_bytes: int, dtype: str, world: int) -> int:
    """As many elements as fit, in `world` equal parts; at least one each."""
    return max(1, size_bytes // np.dtype(DTYPES[dtype]).itemsize // world) * world


def own_part(elements: Elements, rank: int, world: int) -> Elements:
    """The part that belongs to `rank`."""
    part = len(elements) // world
    return elements[rank * part : (rank + 1) * part]


def given(elements: int, dtype: str, rank: int) -> Elements:
    """What `rank` holds before."""
    return (np.arange(elements) % PATTERN + rank).astype(DTYPES[dtype])


def wrong_elements(what: str, result: Elements, *, rank: int, world: int) -> int:
    """How many elements of `rank`'s buffer are not what the collective `what` of everyone's `given` leaves there.

    Those that it leaves undefined do not count: others' parts after a reduce-scatter, buffers beside the root's after a reduce.

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
