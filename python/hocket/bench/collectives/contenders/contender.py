"""What a contender must do. One object per rank; every rank makes the same calls in the same order."""

from __future__ import annotations

from typing import Protocol

from hocket.bench.collectives.definitions import Elements


class Contender(Protocol):
    """One way to do a collective over all ranks of the job.

    While another contender has its turn, this one must not use the processor: ranks may be more than cores.
    """

    about: str
    """For people: version, transport and settings that matter."""

    def prepare(self, what: str, elements: int, dtype: str) -> None:
        """Buffers and whatever the first call of the collective `what` needs, in place of those from before.

        `what` is of `definitions.BUS`, the root is `definitions.ROOT`, reductions are sums. `elements` is the length of a
        rank's whole buffer, a multiple of the number of ranks.
        """

    def write(self, values: Elements) -> None:
        """Set this rank's buffer: all of it, whatever part the collective takes."""

    def read(self) -> Elements:
        """The buffer after a call: for an all-to-all the one that receives."""

    def run(self, times: int) -> None:
        """The collective, so many times, one after the other: the part that is timed.

        Each returns when this rank's buffer may be used again. Errors, as far as the library has any, are raised.
        """

    def empty(self, times: int) -> None:
        """The same calls with nobody to communicate with and next to nothing to do: what a call costs at least."""

    def close(self) -> None:
        """Leave in order."""
