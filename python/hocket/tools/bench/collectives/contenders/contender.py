"""Interface of a contender. There is one object per rank; every rank makes the same calls in the same order."""

from __future__ import annotations

from typing import Protocol

from hocket.tools.bench.collectives.definitions import Elements


class Contender(Protocol):
    """Implementation of a collective over all ranks of the job.

    During another contender's turn, this one must not use the processor: there may be more ranks than cores.
    """

    about: str
    """Description for people: version, transport and relevant settings."""

    def prepare(self, what: str, elements: int, dtype: str) -> None:
        """Prepare buffers and the rest for the collective `what`, replacing the previous ones.

        `what` is of `definitions.BUS`, the root is `definitions.ROOT`, reductions are sums. `elements` is the length of a
        rank's whole buffer, a multiple of the number of ranks.
        """

    def write(self, values: Elements) -> None:
        """Set this rank's buffer: all of it, whatever part the collective takes."""

    def read(self) -> Elements:
        """Return the buffer after a call; for an all-to-all, the receiving one."""

    def run(self, times: int) -> None:
        """Run the collective this many times in a row: the timed part.

        Each call returns when this rank's buffer may be used again. Errors of the library are raised.
        """

    def empty(self, times: int) -> None:
        """Make the same calls without communication and with next to nothing to do: the minimum cost of a call."""

    def close(self) -> None:
        """Leave in order."""
