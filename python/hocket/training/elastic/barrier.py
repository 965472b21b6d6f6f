"""Barrier at the end of each step of an elastic job."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hocket import _native
from hocket.planning.compile import votes_program
from hocket.training.step.votes import ITEM_BYTES


class Barrier:
    """End of a step, complete on a rank when all ranks have entered it."""

    def __init__(self, engine: _native.Engine, hosts: Sequence[str]) -> None:
        """Load the program, at the same position on all ranks."""
        self._engine = engine
        self._memory = engine.allocate(ITEM_BYTES)
        np.frombuffer(memoryview(self._memory), np.float32)[:] = 0
        self.load(hosts)

    def load(self, hosts: Sequence[str]) -> None:
        """Load the program for an epoch of ranks on these hosts."""
        program = votes_program(hosts, 1)
        self._program = self._engine.load(program, {0: (self._memory, 0)}, priority=0, label="done")

    def enter(self) -> int:
        """Enter without waiting; return the program to wait for."""
        self._engine.launch(self._program)
        return self._program
