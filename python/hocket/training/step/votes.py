"""A few numbers of every rank and iteration, of which all ranks get the largest.

They tell which gradients were made, which have more rows than travel, which epoch is known, whether the ranks must meet about
the model's buffers, whether one of them sees that training no longer goes as it did, in elastic jobs, for which epoch of
members each is ready, and now and then a digest of what they must hold alike (`replicas`).

They travel in a program of their own beside the buckets, so that a policy cannot affect them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

import numpy as np

from hocket import _native
from hocket.errors import UsageError
from hocket.planning.compile import votes_program
from hocket.training.memory.replicas import WORDS

ITEM_BYTES = 4
FLAGS = 4
"""Values before those of a look at replicas."""
HEAD = FLAGS + WORDS
"""Values before those of parameters."""

UNMADE, MADE, DENSE = 0, 1, 2
"""Of a parameter: it has no gradient, it has one, and one of more rows than its plan lets travel."""


def elements_of(parameters: int) -> int:
    """How many f32 travel: the flags, a look, and a vote for each parameter."""
    return HEAD + parameters


class Ballot(Protocol):
    """What a session votes by."""

    def cast(
        self,
        epoch: int,
        missing: Collection[str],
        *,
        meet: bool,
        retreat: bool = False,
        dense: Collection[str] = (),
        members: int = 0,
        look: Sequence[float] = (),
    ) -> None:
        """This rank's votes, as `Votes.cast`."""

    def count(self, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> int:
        """The smallest epoch that all know, when all votes are there. `meanwhile` may raise what makes waiting useless."""

    @property
    def meet(self) -> bool:
        """Whether any rank requested a meeting."""

    @property
    def retreat(self) -> bool:
        """Whether any rank requested a retreat."""

    @property
    def members(self) -> int:
        """The smallest epoch of members for which all are ready."""

    @property
    def look(self) -> Sequence[float]:
        """As `Replicas.counted` takes it."""

    def made(self, name: str) -> bool:
        """Whether any rank made a gradient of that parameter."""

    def dense(self, name: str) -> bool:
        """Whether any rank's gradient of that parameter has too many rows."""


class OutOfStep:
    """Of ranks that do not wait for one another, as those of parameter servers: each has its own, and there is one epoch."""

    meet = retreat = False
    members = 0
    look = ()

    def cast(
        self,
        epoch: int,
        missing: Collection[str],
        *,
        meet: bool,
        retreat: bool = False,
        dense: Collection[str] = (),
        members: int = 0,
        look: Sequence[float] = (),
    ) -> None:
        """Nobody is asked. UsageError: all would have to do together what is asked for."""
        if meet or retreat or members or look:
            raise UsageError(
                "ranks that do not wait for one another cannot meet, retreat, go on with other members or compare replicas"
            )
        self._epoch, self._missing, self._dense = epoch, frozenset(missing), frozenset(dense)

    def count(self, _timeout_s: float, _meanwhile: Callable[[], None] | None = None) -> int:
        """The epoch."""
        return self._epoch

    def made(self, name: str) -> bool:
        """Whether this rank did."""
        return name not in self._missing

    def dense(self, name: str) -> bool:
        """Whether this rank's has."""
        return name in self._dense


class Votes:
    """The number of an epoch, negated so that the largest is the smallest; whether to meet; whether to retreat; the number of an
    epoch of members, negated; a look; one of the votes above per parameter."""

    def __init__(self, engine: _native.Engine, hosts: Sequence[str], names: Sequence[str]) -> None:
        """Load the program, at the same position on all ranks."""
        self._engine = engine
        self._place = {name: HEAD + at for at, name in enumerate(names)}
        self._memory = engine.allocate(elements_of(len(names)) * ITEM_BYTES)
        self._values = np.frombuffer(memoryview(self._memory), dtype=np.float32)
        self.load(hosts)

    def load(self, hosts: Sequence[str]) -> None:
        """Load the program for these hosts, by rank: again where an epoch of other members begins. What was counted stays."""
        program = votes_program(hosts, len(self._values))
        self._program = self._engine.load(program, {0: (self._memory, 0)}, priority=0, label="votes")

    def unload(self) -> None:
        """Nobody votes any more."""
        self._engine.unload(self._program)

    def cast(
        self,
        epoch: int,
        missing: Collection[str],
        *,
        meet: bool,
        dense: Collection[str] = (),
        retreat: bool = False,
        members: int = 0,
        look: Sequence[float] = (),
    ) -> None:
        """Send this rank's votes: its known epoch, the parameters without a gradient, whether it requests a meeting, the
        parameters whose gradients have too many rows here, whether it requests that gradients are neither merged nor late
        from now on, the epoch of members for which it is ready, and its `Replicas.vote`.

        Returns at once.
        """
        self._values[HEAD:] = MADE
        self._values[:FLAGS] = -epoch, meet, retreat, -members
        self._values[FLAGS:HEAD] = look or 0
        for names, vote in ((missing, UNMADE), (dense, DENSE)):
            for name in names:
                self._values[self._place[name]] = vote
        self._engine.launch(self._program)

    def count(self, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> int:
        """Wait for all votes; the smallest known epoch."""
        self._engine.wait(self._program, timeout_s, meanwhile)
        return -int(self._values[0])

    @property
    def meet(self) -> bool:
        """Whether any rank requested a meeting."""
        return bool(self._values[1] > 0)

    @property
    def retreat(self) -> bool:
        """Whether any rank requested a retreat."""
        return bool(self._values[2] > 0)

    @property
    def members(self) -> int:
        """The smallest epoch of members for which all are ready."""
        return -int(self._values[3])

    @property
    def look(self) -> Sequence[float]:
        """As `Replicas.counted` takes it."""
        return [float(each) for each in self._values[FLAGS:HEAD]]

    def made(self, name: str) -> bool:
        """Whether any rank made a gradient of that parameter."""
        return bool(self._values[self._place[name]] != UNMADE)

    def dense(self, name: str) -> bool:
        """Whether any rank's gradient of that parameter has too many rows."""
        return bool(self._values[self._place[name]] == DENSE)
