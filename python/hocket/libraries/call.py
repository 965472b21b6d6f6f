"""The call of a collective on a library, and the interface of a library."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Protocol

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
    """`what`: the op's name in programs, or `barrier`; ranks are the job's. Part `i` of a buffer belongs to `group[i]`.

    `on_device`: the buffer is in the memory of the rank's device.
    """

    what: str
    group: tuple[int, ...]
    reduce: str
    root: int | None
    dtype: str
    on_device: bool = False

    def __str__(self) -> str:
        return f"{self.what} of {self.dtype} over {list(self.group)}"


class Lent(Protocol):
    """Memory of a device, which its framework lends to a library. `device`: the framework's."""

    device: Any

    def take(self) -> Any:
        """Return it as the framework's array of bytes. Work that the calling thread gives the device from now on follows all that
        writes there until now."""


class JobEnded(Exception):  # noqa: N818  # no error: whoever waits for the job is told of one
    """The job has ended while a library's collective was under way."""


class Library(Protocol):
    def run(self, call: Call, elements: Any, into: Any) -> None:
        """Execute a call, in place, and to its end; `into` receives the result of an all-to-all. Both are `Elements`, or `Lent` if
        the call is on a device, which only libraries of PyTorch are asked for.

        Waits without the GIL, at most the job's time-out. JobEnded: it does not go on.
        """

    def close(self) -> None:
        """Release the communicators, and end what they have under way on a device. Idempotent."""


def parts(elements: Elements, n: int) -> list[Elements]:
    """Split into parts as even as possible, in the order of the group."""
    edges = [len(elements) * at // n for at in range(n + 1)]
    return [elements[a:b] for a, b in pairwise(edges)]


def place(job: Job, library: str) -> str:
    return f"rank {job.rank} on {job.host}: library `{library}`"
