"""When a step stands, as a field of it: at once (`Commit`), or behind a barrier of members (`training.elastic.commit`)."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from hocket._native import LiveTurn, Readiness
from hocket.artefacts.plan import Plan
from hocket.errors import PeerError, UsageError
from hocket.job.rendezvous import Job
from hocket.training.memory.buckets import Launch, LoadedBucket
from hocket.training.servers.served import PATIENCE_S
from hocket.training.step.owners import Owners
from hocket.training.step.place import Place

if TYPE_CHECKING:
    from hocket.training.step.step import Step


def ends_together() -> UsageError:
    """Return the error for a rank that is to leave a job which is not elastic."""
    return UsageError(
        "leave: this job ends with the first rank that ends\nhint: `hocket run --elastic MIN:MAX` starts one that goes on"
    )


class Commit:
    """Steps of ranks that all train to the end: each goes on with a bucket as soon as it has the sums.

    Votes are counted at the end of the next backward, before the next ones are cast; in the same backward only where a turn is due
    that ends with it. So ranks wait only for turns that are due.
    """

    watches = True
    """True if merged and late gradients are watched: all ranks have been there from the beginning."""
    counts_steps = False
    """True if steps of the optimizer are counted, so that no other may step the parameters."""
    loses_late_ranks = False
    """True if exchanges of ranks that step alone go on without a late one, which is lost."""
    calls_libraries = True
    """True if programs may call libraries."""
    saved_as = ""
    """Begin of the layout of saved turns, which go on under the same alone: they are saved in the commit's own way."""
    step: Step
    ranks: Callable[[], Sequence[int]]
    """Ranks that are in the last sums, as they report."""
    summed: Callable[[LoadedBucket, LoadedBucket, Launch], None]
    """Function to call with a bucket, its mean, and a launch whose sums are here, which a loss may still undo."""

    @property
    def left(self) -> bool:
        """True if this rank takes no further part in the job."""
        return False

    @property
    def job(self) -> Job:
        """Job of the ranks for which the programs in force were made."""
        return self.step.job

    def owners(self, step: Step, place: Place) -> Owners:
        """Return the owners of a step that begins at this place."""
        return Owners(step.framework, place.engine, place.job, step.naming)

    def begin(self, step: Step) -> None:
        """Begin among ranks that have met, when the step has its votes and no buckets."""
        self.step, self.ranks = step, lambda: range(step.job.world)
        self.summed = lambda *_: None

    def loads(self, plan: Plan) -> None:
        """Note that programs of this plan are about to be loaded."""

    def epoch_begins(self, load: Callable[[], None]) -> None:
        """Begin an epoch by `load`, after a step that stands."""
        load()

    def counts(self, readiness: Readiness) -> None:
        """Note that `readiness` counts gradients for programs that were just loaded."""
        if self.step.loading.memory.apart:
            # Turns that were on their way when their state was saved are sent again.
            readiness.launch_all()

    def refused(self, _error: Exception) -> bool:
        """Return whether an error of a launch is dealt with when backward ends."""
        return False

    def backward_began(self) -> None: ...

    def reduce(self, unmade: Sequence[str], *, waits: bool) -> list[LiveTurn]:
        """Send this rank's part of a step; return the turns that are due at its end. `waits`: the step waits for all of them."""
        step = self.step
        with step.naming():
            meet = step.companion.end()
            step.agreement.count()
            step.agreement.cast(unmade, meet=meet)
            due = step.updates.ended(unmade, holds=step.ends_turns)
            step.sent()
            step.companion.launched(waits=waits)
        return due

    def wait(self, turn: LiveTurn) -> None:
        """Wait for the sums of a turn that is due."""
        step = self.step
        bucket = step.buckets[turn.arena]
        with step.naming():
            timeout_s = self.job.settings.timeout_s
            step.updates.wait(turn, timeout_s + (PATIENCE_S if bucket.served else 0.0))
            step.agreement.finish_rows(bucket, lambda program: step.engine.wait(program, timeout_s))
        step.updates.readiness.applied(turn.arena)

    @contextlib.contextmanager
    def flushing(self) -> Iterator[list[list[LiveTurn]]]:
        """Send all turns that are not applied, between two steps; the body applies them, one list after the other."""
        agreement, updates = self.step.agreement, self.step.updates
        agreement.count()
        with self.step.naming():
            weighs = updates.local is not None and updates.local.weighing is not None and not updates.settled
            if weighs:
                agreement.cast((), meet=False)
            rounds = updates.flush()
            self.step.sent()
        if weighs:
            agreement.weigh()
        yield rounds

    def step_ended(self) -> None: ...

    def stepped(self) -> None:
        """Note that the optimizer has stepped."""

    def settle(self) -> list[int]:
        """Wait until what was sent stands; return by launch how many turns have their sums where gradients were."""
        step = self.step
        if step.delays is None:
            return []
        step.agreement.count()
        with step.naming():
            self._wait_for_launches()
        if step.loading.memory.apart:
            # Slots have this rank's own gradients, to be reduced again after resuming.
            return [0] * len(step.launches)
        progress = (step.updates.readiness.progress(launch.number) for launch in step.launches)
        return [launched - applied for _, launched, applied in progress]

    def restored(self) -> None:
        """Note that a saved state was restored."""

    def check_joinable(self) -> None:
        """Raise UsageError if ranks without batches cannot join the others' steps."""

    def check_retires(self) -> None:
        """Raise UsageError if the session cannot end before its job."""

    def leave(self) -> None:
        """Leave the job after a step that is still to come. UsageError: the job ends with its first rank."""
        raise ends_together()

    def close(self) -> None:
        """Finish what other ranks need of this one. A job that has failed was reported already."""
        step, timeout_s = self.step, self.job.settings.timeout_s
        with contextlib.suppress(PeerError):
            step.finish_step()
            if step.delays is not None:
                if step.updates.unmade.counts:
                    step.agreement.wait(timeout_s)
                self._wait_for_launches()

    def _wait_for_launches(self) -> None:
        for launch in self.step.launches:
            self.step.engine.wait(launch.program, self.job.settings.timeout_s)
