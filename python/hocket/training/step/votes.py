"""Votes: a few numbers of every rank and iteration, reduced by max to all ranks.

They tell which gradients were made, which have more rows than travel, which epoch is known, whether the ranks must meet about the
model's buffers, whether a rank sees that training no longer goes as it did, in elastic jobs, for which epoch of members each is
ready, and now and then a digest of what ranks must hold alike (`replicas`). Where gradients may be merged or late, each rank has a
place for a report of its own, which all get as it is: of an exchange of ranks that step alone (`guard/drift.py`). So has each for
what its gradients count by (`weighted`).

Votes travel in a program of their own beside the buckets, so that a policy cannot affect them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from hocket import _native
from hocket.artefacts.local import Sites
from hocket.errors import UsageError
from hocket.planning import sites as planned
from hocket.planning.compile import votes_program
from hocket.training.guard.drift import INFINITE, Report
from hocket.training.guard.drift import WORDS as REPORT
from hocket.training.memory.replicas import WORDS
from hocket.training.step.weighted import UNWEIGHTED

ITEM_BYTES = 4
FLAGS = 4
"""Number of values before the digest of replicas."""
HEAD = FLAGS + WORDS
"""Number of values before those of parameters."""

NO_REPORT = -INFINITE
"""Value in the place of a rank that reports nothing: below all that ranks report."""

UNMADE, MADE, DENSE = 0, 1, 2
"""Votes on a parameter: it has no gradient, it has one, or it has one of more rows than its plan lets travel."""


def elements_of(parameters: int, ranks: int) -> int:
    """Number of f32 that travel without reports: the flags, a digest, a vote for each parameter, and a weight for each rank."""
    return HEAD + parameters + ranks


class Ballot:
    """Votes of a session, as values in one layout: [-epoch, meet, retreat, -members_epoch, a digest of replicas, one vote per
    parameter, a weight per rank, a report per rank]; of several ranks, the largest value counts."""

    def __init__(self, names: Sequence[str], ranks: int, *, rank: int, reports: bool) -> None:
        """Lay out the values. `rank`: this one; `reports`: ranks may report."""
        self._place = {name: HEAD + at for at, name in enumerate(names)}
        self._end = HEAD + len(names)
        self._reports = elements_of(len(names), ranks)
        self.reporter = rank
        self._values = self._allocated(self._reports + reports * ranks * REPORT)

    def _allocated(self, elements: int) -> npt.NDArray[np.float32]:
        """Return the values' memory."""
        return np.empty(elements, dtype=np.float32)

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
        report: Report | None = None,
        weight: float = UNWEIGHTED,
    ) -> None:
        """Cast this rank's votes: its known epoch, the parameters without a gradient, whether it requests a meeting, the parameters
        whose gradients have too many rows here, whether it requests that gradients are neither merged nor late from now on, the
        epoch of members for which it is ready, its `Replicas.vote`, its report of an exchange, and the weight of its gradients.

        Returns at once.
        """
        self._values[HEAD : self._end] = MADE
        self._values[self._end :] = NO_REPORT
        self._values[self._end + self.reporter] = weight
        if report is not None:
            at = self._reports + self.reporter * REPORT
            self._values[at : at + REPORT] = [_finite(each) for each in report]
        self._values[:FLAGS] = -epoch, meet, retreat, -members
        self._values[FLAGS:HEAD] = look or 0
        for names, vote in ((missing, UNMADE), (dense, DENSE)):
            for name in names:
                self._values[self._place[name]] = vote
        self._send()

    def _send(self) -> None:
        """Send this rank's values."""

    def count(self, _timeout_s: float, _meanwhile: Callable[[], None] | None = None) -> int:
        """Wait for all votes; return the smallest known epoch. `meanwhile` may raise an error that makes waiting useless."""
        return -int(self._values[0])

    @property
    def meet(self) -> bool:
        """True if any rank requested a meeting."""
        return bool(self._values[1] > 0)

    @property
    def retreat(self) -> bool:
        """True if any rank requested a retreat."""
        return bool(self._values[2] > 0)

    @property
    def members(self) -> int:
        """Smallest epoch of members for which all ranks are ready."""
        return -int(self._values[3])

    @property
    def look(self) -> Sequence[float]:
        """Digest for `Replicas.counted`."""
        return [float(each) for each in self._values[FLAGS:HEAD]]

    @property
    def reports(self) -> Mapping[int, Report]:
        """Reports by rank, of those that have cast one."""
        rows = self._values[self._reports :].reshape(-1, REPORT)
        return {
            rank: Report(*(float(each) for each in row))
            for rank, row in enumerate(rows)
            if row[0] > NO_REPORT
        }

    @property
    def weights(self) -> Mapping[int, float]:
        """Weights of gradients by rank, of those that have cast votes."""
        told = self._values[self._end : self._reports]
        return {rank: float(each) for rank, each in enumerate(told) if each > NO_REPORT}

    def made(self, name: str) -> bool:
        """Return whether any rank made a gradient of that parameter."""
        return bool(self._values[self._place[name]] != UNMADE)

    def dense(self, name: str) -> bool:
        """Return whether any rank's gradient of that parameter has too many rows."""
        return bool(self._values[self._place[name]] == DENSE)


class OutOfStep(Ballot):
    """Votes of ranks that do not wait for one another, as with parameter servers: each rank has its own, and there is one epoch."""

    weights: Mapping[int, float] = {}

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names, 1, rank=0, reports=True)

    def _send(self) -> None:
        """Send nothing. UsageError: the votes ask for something that all ranks would have to do together."""
        if self._values[1:HEAD].any() or self._values[self._end] != UNWEIGHTED or self.reports:
            raise UsageError(
                "ranks that do not wait for one another cannot meet, retreat, go on with other members or compare replicas"
            )


class Votes(Ballot):
    """Votes of ranks that wait for one another, all or those of a site: one program reduces them by max."""

    def __init__(
        self,
        engine: _native.Engine,
        hosts: Sequence[str],
        names: Sequence[str],
        *,
        rank: int,
        reports: bool = False,
        sites: Sites = (),
    ) -> None:
        """Load the program, at the same position on all ranks. `rank`: this one; `reports`: ranks may report; `sites`: ranks among
        which each vote counts; none: all ranks."""
        self._engine, self._sites = engine, sites
        super().__init__(names, len(hosts), rank=rank, reports=reports)
        self.load(hosts)

    def _allocated(self, elements: int) -> npt.NDArray[np.float32]:
        self._memory = self._engine.allocate(elements * ITEM_BYTES)
        return np.frombuffer(memoryview(self._memory), dtype=np.float32)

    def load(self, hosts: Sequence[str]) -> None:
        """Load the program for these hosts, by rank: again where an epoch of other members begins. Counted votes stay."""
        elements, sites = len(self._values), self._sites
        program = planned.votes(sites, hosts, elements) if sites else votes_program(hosts, elements)
        label = "votes inside sites" if sites else "votes"
        self._program = self._engine.load(program, {0: (self._memory, 0)}, priority=0, label=label)

    def unload(self) -> None:
        """Unload the program: no more votes are cast."""
        self._engine.unload(self._program)

    def _send(self) -> None:
        self._engine.launch(self._program)

    def count(self, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> int:
        self._engine.wait(self._program, timeout_s, meanwhile)
        return super().count(timeout_s)


def _finite(value: float) -> float:
    """Return a value that `max` compares, and f32 holds: NaN and what is too large count as infinite."""
    return max(-INFINITE / 2, value) if value < INFINITE else INFINITE
