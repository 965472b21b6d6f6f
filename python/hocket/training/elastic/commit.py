"""Commit of elastic jobs: a step stands behind a barrier of its members (`standing`), and between two steps ranks leave and join.

Ranks notice a loss in different steps: some when the one before it stands already. The script hears of it in the first step that is
the mean of the remaining ranks, the same step on all: there the session's `job` and its loop become those of the remaining ranks.

Ranks that leave in order do so after a step on which all agree by votes. The script hears of it when that step is applied. A
SIGTERM makes its rank leave so. Ranks join after such a step, too: then all meet anew (`newcomers`), with new rank numbers.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from hocket._native import LiveTurn, Readiness
from hocket.artefacts.plan import Plan
from hocket.errors import EpochError, RendezvousError
from hocket.job.rendezvous import Job
from hocket.members.member_messages import Regroup
from hocket.members.membership import Membership
from hocket.refusals import AGAIN, ELASTIC, JOIN, refused
from hocket.training.elastic.absent import gathered_without_the_absent, without_the_absent
from hocket.training.elastic.giving import Giving
from hocket.training.elastic.notice import Notice
from hocket.training.elastic.owners import MembersOwners
from hocket.training.elastic.standing import Standing
from hocket.training.loop.loop import Loop, workers_of
from hocket.training.memory.turns import is_synchronous
from hocket.training.step.apart import Apart
from hocket.training.step.commit import Commit
from hocket.training.step.companion import MembersCompanion
from hocket.training.step.owners import Owners
from hocket.training.step.place import Place
from hocket.training.step.step import Step

log = logging.getLogger("hocket.elastic")


class Members(Commit):
    """Commit of one session in a job whose ranks may be lost.

    Attributes:
        standing: turns until they stand, and the members in whose steps they do.
        companion: companion of the session.
        meet: callback by which all ranks meet joining ones: called when a step is applied, it ends with `go_on_in` of the session.
        before_forward: callback for work still to be done after a meeting before the next forward, or before this rank ends.
        after_step: callback for work that a meeting has left until the next step is made.
    """

    watches = False
    counts_steps = True
    loses_late_ranks = True
    calls_libraries = False
    saved_as = "elastic "

    def __init__(
        self,
        membership: Membership,
        loop: Loop,
        memory: Apart,
        companion: MembersCompanion,
        giving: Giving | None,
    ) -> None:
        self.standing = Standing(membership, memory)
        self.companion = companion
        self._membership, self._loop, self._giving = membership, loop, giving
        loop.gather = partial(gathered_without_the_absent, membership)
        self._parted: tuple[int, ...] | None = None
        """Members that train on when the step that was reduced last is applied, if others leave then."""
        self.meet: Callable[[Regroup], None] | None = None
        self.before_forward: Callable[[], None] | None = None
        self.after_step: Callable[[], None] | None = None
        self._exchanged = False
        """True if the step of the optimizer that is under way is one of all ranks."""
        self._notice = Notice(self.leave)

    @property
    def job(self) -> Job:
        return self.standing.job

    @property
    def left(self) -> bool:
        return self.standing.left

    def owners(self, step: Step, place: Place) -> Owners:
        standing = self.standing
        known = getattr(standing, "owners", None)
        standing.owners = (
            MembersOwners(step, place, standing, self._membership) if known is None else known.meet(place)
        )
        return standing.owners

    def begin(self, step: Step) -> None:
        super().begin(step)
        if self._giving is not None:
            self.summed = self._giving.summed
        self.ranks = lambda: self.standing.counted
        self.standing.begin(step, self.companion)

    def met(self, holders: Sequence[int]) -> None:
        """Tell the script and the policies that all ranks have met. `holders`: ranks that were there before."""
        standing = self.standing
        standing.owners.met()
        self._membership.resumed(again=False)
        self._loop.met(standing.everyone)
        self._tell(standing.counted, self.step.iteration)
        world = standing.everyone.world
        self.step.source.start_timer(rank for rank in range(world) if rank not in holders)

    def loads(self, plan: Plan) -> None:
        self.standing.plan = plan

    def epoch_begins(self, load: Callable[[], None]) -> None:
        """Begin an epoch of policies: all ranks know it, and gradients move to its buckets."""
        try:
            load()
        except EpochError:
            self.standing.lay_out()
            self.standing.go_on(self.step.iteration)

    def counts(self, readiness: Readiness) -> None:
        """Launch turns again that were in flight in another epoch, with this rank's own gradients as they were."""
        for rows in self.step.updates.rows:
            rows.pack(self.step.framework)
            rows.packed = False
        readiness.launch_all()

    def refused(self, error: Exception) -> bool:
        """Note launches of an epoch that has ended, to make them again in the next one, after backward."""
        if isinstance(error, EpochError):
            self.standing.missed = True
            return True
        return False

    def backward_began(self) -> None:
        """Go on from a step that the script has not applied, such as one with non-finite gradients: ranks may leave with it."""
        if self.standing.owners:
            self.standing.owners.skipped()
            self._parted = self.standing.part() or self._parted
        self._tell_of_parting()

    def reduce(self, unmade: Sequence[str], *, waits: bool) -> list[LiveTurn]:  # noqa: ARG002  # it always does
        return self.standing.ended(unmade)

    def wait(self, turn: LiveTurn) -> None:
        """Return at once: the turn stands."""

    @contextlib.contextmanager
    def flushing(self) -> Iterator[list[list[LiveTurn]]]:
        if self.step.updates.settled:
            yield self.step.updates.flush()
            return
        self.standing.flushing = True
        try:
            yield self.standing.flush()
        finally:
            self.standing.flushing = False

    def step_ended(self) -> None:
        self._exchanged = True
        if self._giving is not None:
            self._giving.backward_ended()
        standing = self.standing
        numbers = tuple(standing.everyone.members[each] for each in standing.counted)
        if numbers != tuple(each.member for each in self._loop.changes.workers):
            self._tell(standing.counted, self.step.iteration - 1)
        self._membership.progress.stepped(
            self.step.iteration, ranks=len(numbers), samples=self._loop.step_stands()
        )
        if not self.standing.owners:
            self._parted = self.standing.part() or self._parted

    def stepped(self) -> None:
        if self.standing.flushing:
            return
        if self.after_step is not None:
            self.after_step()
            self.after_step = None
        if self.standing.owners:
            # Leaving ranks make this step, too, and hand over their parts.
            self._parted = self.standing.part() or self._parted
        local = alone = self.step.updates.local is not None
        alone = alone and not self._exchanged
        self._loop.alone, self._exchanged = alone, False
        if self._parted is not None:
            self._loop.count_all()
        self._tell_of_parting()
        if self._giving is not None:
            alike = local or is_synchronous(self.step.updates.schedule)
            why_not = None if alike else "gradients are merged or late"
            self._giving.stepped(why_not, alone=alone, meets=self.standing.meets)
        self._meet_newcomers()

    def settle(self) -> list[int]:
        """Wait until the last step stands for good. Slots have this rank's own gradients, to be reduced again after resuming."""
        self.standing.settle()
        return [0] * len(self.step.launches)

    def restored(self) -> None:
        self.standing.keep()

    def check_joinable(self) -> None:
        """Raise UsageError: the coordinator decides which ranks take part in a step."""
        raise refused(ELASTIC, JOIN)

    def check_retires(self) -> None:
        """Raise UsageError: joining ranks would not know of it."""
        raise refused(ELASTIC, AGAIN)

    def leave(self) -> None:
        """Leave in order: after a step that is still to come, this process ends when its optimizer has stepped."""
        self._membership.leave()

    def close(self) -> None:
        """Finish: the other ranks may still ask for what this rank knows."""
        self._notice.end()
        if not self.left and self.before_forward is not None:
            # Newcomers wait for this call, and hear afterwards that there are no more steps.
            with contextlib.suppress(RendezvousError):
                self.before_forward()
        self._membership.finish(self.job.settings.timeout_s)

    def _tell(self, members: Sequence[int], step: int, *, left: bool = False) -> None:
        """Tell the script of a change of members."""
        job = self.step.job = self.standing.everyone.among(members)
        self._loop.changes.go_on(workers_of(job), step, left=left)

    def _tell_of_parting(self) -> None:
        if self.left:
            raise SystemExit((self.job.settings.notice_code or 0) if self._notice.heard else 0)
        if self._parted is not None:
            parted, self._parted = self._parted, None
            self._tell(parted, self.step.iteration, left=True)

    def _meet_newcomers(self) -> None:
        """Meet newcomers. All ranks are here or on their way: no gradients are in flight, no samples of the next step are drawn.

        Whether they meet follows from the step alone. An epoch with newcomers may have begun since, with a loss that some ranks
        have noticed in the next step already.
        """
        standing = self.standing
        step = standing.step
        while standing.meets and step.updates.settled and self._membership.newcomers and self.meet:
            order = None
            if self._giving is not None:
                self._giving.meets(self._membership.newcomers, step.iteration)
            with contextlib.suppress(EpochError), without_the_absent(self._membership):
                order = self._membership.at_edge(self.job.settings.timeout_s, standing.check_finished)
            if order is None:
                # A rank was lost. The next epoch says if others still want to join.
                standing.go_on(step.iteration - 1)
                continue
            self._loop.count_all()
            step.source.stop()
            if step.updates.local is not None:
                # Newcomers begin at the anchor, and so do all.
                step.framework.local.settle()
            self.meet(order)


def warn_of_unwatched(step: Step) -> None:
    """Warn that merged and late gradients are not judged in this job."""
    job, schedule = step.job, step.updates.schedule
    judged = schedule.steps != "local" and not is_synchronous(schedule)
    if job.settings.sentinel and job.rank == 0 and judged:
        log.warning(
            "gradients are merged or late from the first iteration on, and neither guard nor sentinel watches that: "
            "they do not work in elastic jobs yet"
        )
