"""The call of a collective on a library, and the interface of a library."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from hocket.job.rendezvous import Job

DTYPES = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "bf16": np.uint16,
    "i64": np.int64,
    "i32": np.int32,
    "i8": np.int8,
    "u8": np.uint8,
}
"""NumPy types of element types. NumPy has no bf16: its bits travel as uint16, which only a library with its own bf16 may reduce."""

Elements = npt.NDArray[np.generic]


@dataclass(frozen=True)
class Call:
    """`what`: the op's name in programs, or `barrier`; ranks are the job's. Part `i` of a buffer belongs to `group[i]`."""

    what: str
    group: tuple[int, ...]
    reduce: str
    root: int | None
    dtype: str

    def __str__(self) -> str:
        return f"{self.what} of {self.dtype} over {list(self.group)}"


class Library(Protocol):
    def run(self, call: Call, elements: Elements, into: Elements | None) -> None:
        """Execute a call, in place; `into` receives the result of an all-to-all.

        Waits without the GIL, at most the job's time-out.
        """

    def close(self) -> None:
        """Release the communicators."""


def parts(elements: Elements, n: int) -> list[Elements]:
    """Split into parts as even as possible, in the order of the group."""
    edges = [len(elements) * at // n for at in range(n + 1)]
    return [elements[a:b] for a, b in pairwise(edges)]


def place(job: Job, library: str) -> str:
    return f"rank {job.rank} on {job.host}: library `{library}`"
