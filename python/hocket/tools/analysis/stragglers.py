"""Stragglers: workers whose computation took longest, iteration by iteration, and delayed the others."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

Times = npt.NDArray[np.int64]


class Straggler(Struct, frozen=True, kw_only=True):
    """Worker compared with the median of all, in iterations that all have. Durations need no common clock."""

    node: int
    iterations: int
    mean_computation_us: float
    slower_than_median: float
    """Ratio of its computation to the median worker's, on average: 1.1 is 10 % longer."""
    slowest_share: float
    """Share of iterations in which it was the slowest; ties are divided."""


def stragglers(computation: dict[int, tuple[Times, Times]]) -> tuple[Straggler, ...]:
    """Return the stragglers from iterations and computation in nanoseconds, by node; none without two nodes with common
    iterations."""
    numbered = {node: times for node, times in computation.items() if len(times[0])}
    if len(numbered) < 2:
        return ()
    shared = None
    for numbers, _ in numbered.values():
        shared = numbers if shared is None else np.intersect1d(shared, numbers)
    if shared is None or not len(shared):
        return ()
    table = np.stack([_of(numbers, times, shared) for numbers, times in numbered.values()])
    middle = np.median(table, axis=0)
    if not (middle > 0).any():
        return ()
    # If half of the workers did not compute at all, a ratio to the median has no meaning.
    table, middle = table[:, middle > 0], middle[middle > 0]
    slowest = table == table.max(axis=0)
    slowest = slowest / slowest.sum(axis=0)
    return tuple(
        Straggler(
            node=node,
            iterations=len(middle),
            mean_computation_us=float(table[row].mean()) / 1000,
            slower_than_median=float((table[row] / middle).mean()),
            slowest_share=float(slowest[row].mean()),
        )
        for row, node in enumerate(numbered)
    )


def _of(numbers: Times, times: Times, wanted: Times) -> Times:
    first, at = np.unique(numbers, return_index=True)
    return times[at[np.searchsorted(first, wanted)]]
