"""Agreement of ranks with each step, by votes: which gradients exist, which epoch begins, whether they meet or retreat."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.buckets import LoadedBucket
from hocket.training.memory.gathered import dense_names
from hocket.training.memory.gradients import gradients_of
from hocket.training.step.place import Place
from hocket.training.step.together import Together
from hocket.training.step.votes import Ballot, OutOfStep, Votes
from hocket.training.step.weighted import UNWEIGHTED

if TYPE_CHECKING:
    from hocket.training.step.step import Step


class Agreement:
    """Votes of one session among the ranks that have met.

    Attributes:
        votes: votes of the last backward.
        together: checks that ranks hold the same.
        begins: an epoch begins when all gradients are given.
    """

    together: Together

    def __init__(self, step: Step, place: Place) -> None:
        """Load the program of votes."""
        self.begins = False
        self._step = step
        self._names = list(gradients_of(step.framework.parameters()))
        self._unmade: Sequence[str] = ()
        self.votes: Ballot = OutOfStep(self._names)
        if place.source.in_step:
            job, reports = place.job, step.updates.merges
            self.votes = Votes(place.engine, job.hosts, self._names, rank=job.rank, reports=reports)

    @property
    def settles(self) -> bool:
        """True if an epoch may begin with the step under way, of all that ranks give then."""
        return self._step.delays is None and not self._step.source.epochs.settled

    def cast(self, unmade: Sequence[str], *, meet: bool, members: int = 0) -> None:
        """Cast this rank's votes at the end of a backward."""
        step, self._unmade = self._step, unmade
        local = step.updates.local
        drift = None if step.delays is None or step.delays.drift is None else step.delays.drift.report
        self.votes.cast(
            step.source.epochs.vote(),
            unmade,
            meet=meet,
            retreat=step.delays is not None and step.delays.alarmed,
            dense=dense_names(step.updates.rows),
            members=members,
            look=self.together.vote(step.iteration),
            report=drift if local is None else local.report(drift),
            weight=self._weight(),
        )

    def _weight(self) -> float:
        weighted, job = self._step.accumulation.weighted, self._step.place.job
        return UNWEIGHTED if weighted is None else weighted.vote(self._step.iteration, job.members[job.rank])

    def count(self) -> None:
        """Count the votes of the last backward, if they are not counted: the same iteration on all ranks."""
        step = self._step
        if not step.updates.unmade.counts:
            return
        with step.naming():
            self.wait(step.job.settings.timeout_s)
            self.decide()
            step.companion.arrive()
            if self.votes.meet:
                step.companion.meet()
            timeout_s = step.job.settings.timeout_s
            self.begin_dense(lambda number: step.updates.readiness.wait(number, timeout_s))

    def wait(self, timeout_s: float, meanwhile: Callable[[], None] | None = None) -> None:
        """Wait for all votes. `meanwhile` may raise an error that makes waiting useless."""
        self._epoch = self.votes.count(timeout_s, meanwhile)

    def weigh(self) -> None:
        """Count votes that were cast between two steps, for the weights of turns that end there."""
        with self._step.naming():
            self.wait(self._step.job.settings.timeout_s)
            self.decide()

    def decide(self) -> None:
        """Act on the votes that are here."""
        step = self._step
        self.begins = bool(step.source.decide(self._epoch)) or self.begins
        self.together.counted(self.votes)
        if step.accumulation.weighted is not None:
            step.accumulation.weighted.counted(self.votes.weights, step.place.job, step.iteration + 1)
        if step.delays is not None:
            epoch = step.source.epochs.current
            step.delays.counted(self.votes, step.source.plan(epoch), step.iteration + 1, epoch.number)
        step.updates.unmade.counted(name for name in self._unmade if not self.votes.made(name))

    def finish_rows(self, bucket: LoadedBucket, wait: Callable[[int], None] | None = None) -> None:
        """Make the gradient of a bucket of rows that of all ranks. `wait` waits for a dense program; None: all are complete."""
        for rows in (launch.rows for launch in bucket.launches if launch.rows is not None):
            name = rows.gradient.name
            if self.votes.made(name):
                dense = self.votes.dense(name)
                if dense and wait is not None:
                    wait(rows.program)
                rows.finish(self._step.framework, dense=dense)

    def begin_dense(self, wait: Callable[[int], None] | None = None) -> list[int]:
        """Run dense programs on all ranks when votes are counted, whichever bucket each rank waits for first; return their numbers.
        `wait` waits for the program of a bucket by the number of its launch; None: all are complete."""
        step, begun = self._step, []
        for launch in step.launches:
            if launch.rows is not None and self.votes.dense(launch.rows.gradient.name):
                if wait is not None:
                    wait(launch.number)
                launch.rows.begin_dense(step.iteration)
                begun.append(launch.rows.program)
        return begun

    def order(self, seen: list[tuple[int, int]]) -> None:
        """Agree on the order of rank 0's gradients after the first step; gradients that did not come keep their assumed order."""
        step, job, mine = self._step, self._step.job, None
        if job.rank == 0:
            names = [step.updates.name(place) for place in seen]
            mine = list(dict.fromkeys([*names, *bucket_memory.assumed_backward(self._names)]))
        order = job.store.gather("backward", job.rank, job.world, mine, job.settings.timeout_s)[0]
        step.source.observed(tuple(order))

    def end(self) -> None:
        """Stop: the model trains no longer."""
        if isinstance(self.votes, Votes):
            self.votes.unload()
        self.together.end()
