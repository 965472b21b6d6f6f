"""A few numbers of every rank and iteration, of which all get the largest: which gradients were made, which epoch is known.

They travel in a program of their own beside the buckets, so that what a policy does to gradients cannot touch them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hocket import _native
from hocket.planners.compile import votes_program

ITEM_BYTES = 4


class Votes:
    """One epoch number, as its negative so that the largest is the smallest, and one flag per parameter."""

    def __init__(self, engine: _native.Engine, hosts: Sequence[str], names: Sequence[str]) -> None:
        """Load the program: on all ranks in the same order among others."""
        self._engine = engine
        self._place = {name: 1 + at for at, name in enumerate(names)}
        memory = engine.allocate((1 + len(names)) * ITEM_BYTES)
        self._values = np.frombuffer(memoryview(memory), dtype=np.float32)
        self._program = engine.load(
            votes_program(hosts, 1 + len(names)), {0: (memory, 0)}, priority=0, label="votes"
        )

    def cast(self, epoch: int, missing: Sequence[str]) -> None:
        """This rank's: the epoch it knows, and the parameters that got no gradient. Returns at once."""
        self._values[1:] = 1
        self._values[0] = -epoch
        for name in missing:
            self._values[self._place[name]] = 0
        self._engine.launch(self._program)

    def count(self, timeout_s: float) -> int:
        """Wait for all; the smallest epoch that is known."""
        self._engine.wait(self._program, timeout_s)
        return -int(self._values[0])

    def made(self, name: str) -> bool:
        """Whether any rank made a gradient of that parameter."""
        return bool(self._values[self._place[name]] > 0)
