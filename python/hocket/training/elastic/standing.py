"""Steps that stand for all members of an elastic job, or for none: those that a loss interrupts are reduced again by the others.

Each step ends with a barrier, which a rank enters when all sums are there. So a rank that leaves it knows that all ranks have the
sums. If a rank has left it before a loss, the step stands for all, otherwise all repeat it without the lost ranks: it is the mean
over exactly the members of the epoch in which it stands (`crates/protocol/src/membership`). State that policies keep goes on from
the step that stood last, and policies are traced anew for the remaining ranks.

A rank's own gradients stay in their slots until their turn is applied; sums are made in other memory. So when ranks are lost, the
remaining ranks launch all turns again that have ended and are not applied, the oldest first: they become means over those ranks.
Open turns go on. Some ranks may be an iteration ahead of others: they have the same turns before that, in the same order.

Before ranks join or leave, all gradients that were made are applied. The ranks agree on it by votes. From the iteration of that
agreement no turn ends; turns in flight become due, and then the open ones end early, in an iteration in which nothing else is due.
The epoch of members begins after that iteration.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial

from hocket._native import LiveTurn
from hocket.artefacts.plan import Plan
from hocket.errors import EpochError
from hocket.job.rendezvous import Job
from hocket.members.membership import Membership
from hocket.training.elastic.absent import check_finished, without_the_absent
from hocket.training.elastic.areas import Apart
from hocket.training.elastic.barrier import Barrier
from hocket.training.elastic.followed import followed
from hocket.training.elastic.kept import Kept
from hocket.training.memory.turns import slots_for
from hocket.training.step.companion import MembersCompanion
from hocket.training.step.step import Step
from hocket.training.step.votes import Votes


class Standing:
    """Turns of one session between the end of a backward and the moment at which they stand.

    Attributes:
        session: the session whose programs are launched.
        everyone: the job of all ranks that have met.
        job: the same, as the members of the engine's epoch see it.
        members: these members, by their ranks when all met.
        counted: members whose gradients are in the last step.
        plan: plan of all that have met, in the epoch of policies in force: the remaining ranks go on with its buckets.
        meets: all meet newcomers when the last step that stands is applied, provided there still are any.
        missed: a part of this step was not launched, because the epoch of members had ended.
        flushing: turns are applied between two steps.
        left: the others go on without this rank.
    """

    session: Step
    everyone: Job
    job: Job
    members: tuple[int, ...]
    counted: tuple[int, ...]
    plan: Plan

    def __init__(self, membership: Membership, memory: Apart) -> None:
        self.meets = self.missed = self.flushing = self.left = False
        self._membership, self._memory = membership, memory
        self._kept = Kept()
        self._whole = False
        """True if all sums of the step are here and not taken yet."""
        self._in_force = 0
        """Epoch of members in which the step's votes were cast."""
        self._awaited = self._planned = False
        """True if newcomers were waiting in that epoch; if other members wait until all gradients that were made are applied."""
        self._settled = 0
        """Number of steps that stand for good, whichever rank is lost."""
        self._due: list[LiveTurn] = []
        """Turns that the iteration under way applies, until it stands; of each arena, the oldest first."""
        self._taken: list[LiveTurn] = []

    def begin(self, session: Step, companion: MembersCompanion) -> None:
        """Begin among ranks that have met."""
        self.session, self._companion = session, companion
        self.job = self.everyone = session.job
        self.members = self.counted = tuple(range(session.job.world))
        self._settled = session.iteration
        self.missed = self._whole = False
        self._barrier = Barrier(session.engine, session.job.hosts)

    def keep(self) -> None:
        """Copy the state that policies keep, which is now as after the last step that stands."""
        if self.session.source.policies:
            self._kept.take(self.session.buckets, self.session.engine, self.job.rank)

    def put_back(self) -> None:
        """Restore the copies into programs that were just loaded."""
        self._kept.put(self.session.buckets, self.session.engine, self.job.rank)

    def ended(self, unmade: Sequence[str]) -> list[LiveTurn]:
        """Send this rank's part of a step, and repeat it until it stands; return the turns that it applies."""
        with self._noting_what_is_missed():
            self._cast(unmade)
        self._due = self.session.updates.ended(holds=self.session.ends_turns)
        return self._reduce(unmade)

    def flush(self) -> list[list[LiveTurn]]:
        """Apply all turns in a step of the job without a backward, by all ranks that go on, or by none; return them, at most one
        of each arena at a time."""
        with self._noting_what_is_missed():
            self._cast(())
        rounds = self.session.updates.flush()
        self._due = [turn for due in rounds for turn in due]
        self._reduce(())
        self.session.companion.step_ended()
        self.session.iteration += 1
        return rounds

    def settle(self) -> None:
        """Wait until the last step stands for good: if this rank is shut out before that, others may repeat the step without it."""
        if self._settled < self.session.iteration:
            try:
                self.meet_once_more()
            except EpochError:
                # The step stands for the remaining ranks, as this one, which is among them, has it.
                self.go_on(self.session.iteration - 1)
            self._settled = self.session.iteration

    def meet_once_more(self) -> None:
        """Wait for all ranks between two steps. A rank that has met all others may finish before this rank does."""
        finished = partial(self.check_finished, self.session.iteration - 1)
        with without_the_absent(self._membership):
            self.session.engine.wait(self._barrier.enter(), self.job.settings.timeout_s, finished)

    def check_finished(self, step: int | None = None) -> None:
        """Raise PeerError if another rank no longer takes part in that step; None: the step under way."""
        step = self.session.iteration if step is None else step
        check_finished(self._membership.finished, self.members, self.everyone, step)

    def let_go(self, steps: int) -> None:
        """End this rank's part: the others have gone on without it after so many steps, and no longer wait for it."""
        self.left, self._settled, self.session.agreement.begins = True, steps, False
        self.session.source.stop()
        self.session.engine.close()
        self.everyone.store.leave()

    def go_on(self, step: int) -> bool:
        """Begin the epoch of the remaining ranks. Return whether the step stands: a rank had seen that all have its sums."""
        session = self.session
        self.counted = self.members
        kept = self._kept
        if self._whole and session.source.policies:
            # The engine's next epoch frees the programs, and with them their state.
            kept = Kept()
            kept.take(session.buckets, session.engine, self.job.rank)
        while True:
            epoch = self._membership.next_epoch(self.job.settings.timeout_s)
            if epoch is None:
                if self._whole:
                    self._take()
                self.let_go(step + 1)
                return True
            self.members = epoch.members
            stands = self._membership.committed > step
            if stands and self._whole:
                self._kept = kept
                self._take()
            self._whole = False
            if session.agreement.begins:
                self.lay_out()
            self.missed = False
            try:
                self._load(epoch.number)
            except EpochError:
                continue
            self._settled = self._membership.committed
            self._membership.resumed(epoch.number, again=not stands)
            return stands

    def lay_out(self) -> None:
        """Lay out the buckets of an epoch of policies that begins after the last step. Others may have loaded it already."""
        session = self.session
        session.agreement.begins = False
        self.plan = session.source.plan(session.source.epochs.current)
        compiled = session.source.buckets()
        slots = slots_for(self.plan, len(compiled))
        self._memory.lay_out(compiled, session.engine, session.framework, slots)

    def _cast(self, unmade: Sequence[str]) -> None:
        """Cast this rank's votes. EpochError: the epoch of members has ended."""
        # If newer values are of a later epoch already, nothing can be launched in the engine's.
        self._in_force, self._awaited = self._membership.in_force, bool(self._membership.newcomers)
        meet, members = self.session.companion.end(), self._membership.vote
        self.session.agreement.cast(unmade, meet=meet, members=members)

    def _reduce(self, unmade: Sequence[str]) -> list[LiveTurn]:
        """Repeat the step until it stands. Launches of this epoch are in flight."""
        step = self.session.iteration
        stands = self._stands(step)
        while not stands and not self.go_on(step):
            with self._noting_what_is_missed():
                self._cast(unmade)
            stands = self._stands(step)
        if stands:
            self.counted = self.members
        taken, self._taken = self._taken, []
        return taken

    def _stands(self, step: int) -> bool:
        """Wait for the step's sums, and until all ranks have them; return False if the epoch of members ends before that."""
        if self.missed:
            return False
        session = self.session
        try:
            with without_the_absent(self._membership):
                self._wait_for_sums()
                agreed = self._agreed()
                self.meets = self._awaited or agreed != self._in_force
                if session.agreement.votes.meet:
                    session.companion.meet()
                self._whole = True
                if self._membership.prepared(step, agreed):
                    self._wait(self._barrier.enter())
                if not self._membership.done(step):
                    return False
        except EpochError:
            return False
        self.keep()
        self._take()
        return True

    def _wait_for_sums(self) -> None:
        """Wait for the sums of turns that are due. When all votes are here, all ranks have launched those turns."""
        timeout_s, updates = self.job.settings.timeout_s, self.session.updates
        self.session.agreement.wait(timeout_s, self.check_finished)
        for turn in self._due:
            if updates.readiness.waits(turn.arena):
                updates.wait(turn, timeout_s)
            else:
                for launch in updates.buckets[turn.arena].launches:
                    self._wait(launch.program)

    def _agreed(self) -> int:
        """Return the epoch of members in force when this step stands: another than before only if all are ready for it, no turn is
        open or in flight, and the script makes a step."""
        agreed = self.session.agreement.votes.members
        self._planned = self._awaited or agreed != self._in_force
        return agreed if self.session.updates.settled and not self.flushing else self._in_force

    def _take(self) -> None:
        """Take the sums of a step that stands, and its votes."""
        updates = self.session.updates
        self._whole = False
        self.session.agreement.decide()
        for turn in self._due:
            updates.readiness.applied(turn.arena)
        self._taken, self._due = self._due, []
        if self._planned and not updates.settled:
            updates.hold()

    def _wait(self, program: int) -> None:
        self.session.engine.wait(program, self.job.settings.timeout_s, self.check_finished)

    @contextlib.contextmanager
    def _noting_what_is_missed(self) -> Iterator[None]:
        try:
            yield
        except EpochError:
            self.missed = True

    def _load(self, epoch: int) -> None:
        """Load programs of an epoch of members; EpochError: the epoch has ended already."""
        session = self.session
        job = self.everyone.among(self.members)
        before = session.source
        if before.timer is not None:
            for rank, member in enumerate(self.job.members):
                if member not in job.members:
                    before.timer.worker_removed(rank)
        before.stop()
        self.job = job
        session.source, compiled = followed(before, self.plan, job, epoch)
        placed = self._memory.loaded(compiled, session.engine, f" of members' epoch {epoch}")
        self._kept.put(placed, session.engine, job.rank)
        if isinstance(session.agreement.votes, Votes):
            session.agreement.votes.load(job.hosts)
        self._barrier.load(job.hosts)
        self._companion.load(job)
        session.follow(placed)
        session.source.start_timer(())
