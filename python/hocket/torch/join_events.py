"""Events of `join`, of which all ranks learn at once what each of them does: begin a batch, or, where owners update, step or clip.
A rank that has finished does nothing, and takes part in what the others do."""

from __future__ import annotations

from typing import Any

import numpy as np

from hocket import _native
from hocket.errors import UsageError
from hocket.job.rendezvous import Job
from hocket.planning.compile import votes_program

FINISHED, BATCH, STEP, NUMBERED, CLIP = range(5)
"""Acts of a rank. `NUMBERED`: step, with other numbers of the optimizer's groups than before."""

WORDS = ("has finished", "begins a batch", "steps", "steps", "clips gradients")


class Events:
    """Events of one model. Each is waited for before the next one is told.

    Attributes:
        open: this rank has told of one that has not ended.
        kind: what the ranks that have not finished do.
        ranks: these ranks, ascending.
    """

    kind: int
    ranks: list[int]

    def __init__(self, job: Job, engine: _native.Engine) -> None:
        """Load the program; all ranks do so."""
        self._job, self._engine, self.open = job, engine, False
        memory = engine.allocate(job.world * 4)
        self._values = np.frombuffer(memoryview(memory), dtype=np.float32)
        program = votes_program(job.hosts, job.world)
        self._program = engine.load(program, {0: (memory, 0)}, priority=0, label="join")

    @property
    def come(self) -> bool:
        """True if `wait` would return at once."""
        return self._engine.is_complete(self._program)

    def tell(self, kind: int) -> None:
        """Tell the others what this rank does."""
        self._values[:] = FINISHED
        self._values[self._job.rank] = kind
        self._engine.launch(self._program)
        self.open = True

    def wait(self) -> None:
        """Wait until all ranks have told. UsageError: they do different things."""
        self._engine.wait(self._program, self._job.settings.timeout_s)
        told = [int(each) for each in self._values]
        self.ranks = [rank for rank, kind in enumerate(told) if kind != FINISHED]
        self.kind = max(told)
        for rank in self.ranks:
            if WORDS[told[rank]] != WORDS[self.kind]:
                raise UsageError(
                    f"join: rank {rank} on {self._job.hosts[rank]} {WORDS[told[rank]]}, and rank {told.index(self.kind)} "
                    f"{WORDS[self.kind]}\nhint: ranks that have batches make the same steps"
                )

    @property
    def few(self) -> bool:
        """True if some ranks have finished."""
        return len(self.ranks) < self._job.world

    def of_last(self, value: Any) -> Any:
        """Return the value of the highest rank that has not finished. All ranks call this at the same event."""
        job = self._job
        return job.store.gather("join", job.rank, job.world, value, job.settings.timeout_s)[self.ranks[-1]]

    def unload(self) -> None:
        """Unload the program, after an event that every rank has waited for."""
        self._engine.unload(self._program)
