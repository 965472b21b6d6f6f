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
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from hocket import _native
from hocket._native import LiveTurn
from hocket.artefacts.plan import Plan
from hocket.errors import EpochError
from hocket.job.rendezvous import Job
from hocket.members.membership import Membership
from hocket.members.participation import Epoch
from hocket.planning.compile import votes_program
from hocket.training.elastic.absent import check_finished, without_the_absent
from hocket.training.elastic.followed import followed
from hocket.training.elastic.kept import Kept
from hocket.training.elastic.owners import MembersOwners
from hocket.training.memory.turns import slots_for
from hocket.training.step.apart import Apart
from hocket.training.step.companion import MembersCompanion
from hocket.training.step.step import Step
from hocket.training.step.votes import ITEM_BYTES, Votes


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


class Standing:
    """Turns of one session between the end of a backward and the moment at which they stand.

    Attributes:
        step: whose programs are launched.
        everyone: the job of all ranks that have met.
        job: the same, as the members of the engine's epoch see it.
        memory: where gradients and sums lie.
        members: these members, by their ranks when all met.
        counted: members whose gradients are in the last step.
        owners: owners that update, if the plan has any, and their seconds.
        plan: plan of all that have met, in the epoch of policies in force: the remaining ranks go on with its buckets.
        meets: all meet newcomers when the last step that stands is applied, provided there still are any.
        missed: a part of this step was not launched, because the epoch of members had ended.
        flushing: turns are applied between two steps.
        left: the others go on without this rank.
    """

    step: Step
    everyone: Job
    job: Job
    members: tuple[int, ...]
    counted: tuple[int, ...]
    plan: Plan
    owners: MembersOwners

    def __init__(self, membership: Membership, memory: Apart) -> None:
        self.meets = self.missed = self.flushing = self.left = False
        self._membership, self.memory = membership, memory
        self._kept = Kept()
        self._whole = False
        """True if all sums of the step are here and not taken yet."""
        self._in_force = 0
        """Epoch of members in which the step's votes were cast."""
        self._awaited = False
        """True if newcomers were waiting in that epoch."""
        self._settled = 0
        """Number of steps that stand for good, whichever rank is lost."""
        self._due: list[LiveTurn] = []
        """Turns that the iteration under way applies; of each arena, the oldest first."""

    def begin(self, step: Step, companion: MembersCompanion) -> None:
        """Begin among ranks that have met."""
        self.step, self._companion = step, companion
        self.job = self.everyone = step.job
        self.members = self.counted = tuple(range(step.job.world))
        self._settled = step.iteration
        self.missed = self._whole = False
        self.barrier = Barrier(step.engine, step.job.hosts)

    def keep(self) -> None:
        """Copy the state that policies keep, which is now as after the last step that stands."""
        if self.step.source.policies:
            self._kept.take(self.step.buckets, self.step.engine, self.job.rank)

    def put_back(self) -> None:
        """Restore the copies into programs that were just loaded."""
        self._kept.put(self.step.buckets, self.step.engine, self.job.rank)

    def ended(self, unmade: Sequence[str]) -> list[LiveTurn]:
        """Send this rank's part of a step, and repeat it until it stands; return the turns that it applies."""
        with self._noting_what_is_missed():
            self._cast(unmade)
        self._due = self.step.updates.ended(unmade, holds=self.step.ends_turns)
        return self._reduce(unmade)

    def flush(self) -> list[list[LiveTurn]]:
        """Apply all turns in a step of the job without a backward, by all ranks that go on, or by none; return them, at most one
        of each arena at a time."""
        with self._noting_what_is_missed():
            self._cast(())
        rounds = self.step.updates.flush()
        self._due = [turn for due in rounds for turn in due]
        self._reduce(())
        self.step.companion.step_ended()
        self.step.iteration += 1
        return rounds

    def settle(self) -> None:
        """Wait until the last step stands for good: if this rank is shut out before that, others may repeat the step without it."""
        if self._settled < self.step.iteration:
            try:
                self.meet_once_more()
            except EpochError:
                # The step stands for the remaining ranks, as this one, which is among them, has it.
                self.go_on(self.step.iteration - 1)
            self._settled = self.step.iteration

    def between_steps(self, exchange: Callable[[], None]) -> None:
        """Make an exchange of all ranks between two steps; where one is lost in it, among those that remain."""
        while not self.left:
            try:
                with without_the_absent(self._membership):
                    exchange()
            except EpochError:
                self.go_on(self.step.iteration - 1)
            else:
                return

    def meet_once_more(self) -> None:
        """Wait for all ranks between two steps. A rank that has met all others may finish before this rank does."""
        finished = partial(self.check_finished, self.step.iteration - 1)
        with without_the_absent(self._membership):
            self.step.engine.wait(self.barrier.enter(), self.job.settings.timeout_s, finished)

    def check_finished(self, iteration: int | None = None) -> None:
        """Raise PeerError if another rank no longer takes part in that step; None: the step under way."""
        iteration = self.step.iteration if iteration is None else iteration
        check_finished(self._membership.finished, self.members, self.everyone, iteration)

    def let_go(self, steps: int) -> None:
        """End this rank's part: the others have gone on without it after so many steps, and no longer wait for it."""
        self.left, self._settled, self.step.agreement.begins = True, steps, False
        self.step.source.stop()
        self.step.engine.close()
        self.everyone.store.leave()

    def go_on(self, iteration: int) -> bool:
        """Begin the epoch of the remaining ranks. Return whether the step stands: a rank had seen that all have its sums."""
        step = self.step
        if iteration >= step.iteration:
            self.counted = self.members
        kept = self._kept
        if self._whole and step.source.policies:
            # The engine's next epoch frees the programs, and with them their state.
            kept = Kept()
            kept.take(step.buckets, step.engine, self.job.rank)
        while True:
            epoch = self._membership.next_epoch(self.job.settings.timeout_s)
            if epoch is None:
                if self._whole:
                    self._take()
                else:
                    self._due = []
                self.let_go(iteration + 1)
                return True
            self._goes_on(epoch)
            stands = self._membership.committed > iteration
            taken = stands and self._whole
            if taken:
                self._kept = kept
                self._take()
            self._whole = False
            if step.agreement.begins:
                if taken and not self.flushing:
                    # The optimizer is given the sums now: the buckets that follow lie in other memory.
                    due, self._due = self._due, []
                    step.give(due)
                    step.updates.shown = {}
                self.lay_out()
            self.missed = False
            try:
                self._load(epoch.number)
                self.owners.begin(between=iteration < self.step.iteration)
            except EpochError:
                continue
            self._settled = self._membership.committed
            self._membership.resumed(epoch.number, again=not stands)
            return stands

    def _goes_on(self, epoch: Epoch) -> None:
        """Note who goes on. If others were lost, dumps show the step in which this rank waited for them."""
        gone, self.members = set(self.members).difference(epoch.members), epoch.members
        if (failing := self.everyone.failing) is not None:
            failing.goes_on(epoch.members, sorted(gone.difference(epoch.left)))

    def part(self) -> tuple[int, ...] | None:
        """Begin the epoch without leaving ranks, if all ranks have agreed on it with the step that was reduced last; return the
        members without them.

        All ranks wait for one another once more. A rank that has done so knows that all have the step: nobody needs connections of
        the old epoch any more, and the first rank that closes those to a leaver does no harm.
        """
        members = self._membership.without_leavers()
        if members is None or self.left:
            return None
        if not set(self.members) <= set(members):
            with contextlib.suppress(EpochError):
                self.owners.hand_over(members)
                self.meet_once_more()
            iteration = self.step.iteration
            if self.everyone.rank not in members:
                self._membership.wait_for_release(self.job.settings.timeout_s)
                self.let_go(iteration)
                return None
            self.go_on(iteration - 1)
        return members

    def lay_out(self) -> None:
        """Lay out the buckets of an epoch of policies that begins after the last step. Others may have loaded it already."""
        step = self.step
        step.agreement.begins = False
        self.plan = step.source.plan(step.source.epochs.current)
        compiled = step.source.buckets()
        slots = slots_for(self.plan, len(compiled))
        self.memory.lay_out(compiled, step.engine, step.framework, slots)

    def _cast(self, unmade: Sequence[str]) -> None:
        """Cast this rank's votes. EpochError: the epoch of members has ended."""
        # If newer values are of a later epoch already, nothing can be launched in the engine's.
        self._in_force, self._awaited = self._membership.in_force, bool(self._membership.newcomers)
        meet, members = self.step.companion.end(), self._membership.vote
        self.step.agreement.cast(unmade, meet=meet, members=members)

    def _reduce(self, unmade: Sequence[str]) -> list[LiveTurn]:
        """Repeat the step until it stands. Launches of this epoch are in flight."""
        iteration = self.step.iteration
        stands = self._stands(iteration)
        while not stands and not self.go_on(iteration):
            with self._noting_what_is_missed():
                self._cast(unmade)
            stands = self._stands(iteration)
        if stands:
            self.counted = self.members
        return self._due

    def _stands(self, iteration: int) -> bool:
        """Wait for the step's sums, and until all ranks have them; return False if the epoch of members ends before that."""
        if self.missed:
            return False
        step = self.step
        try:
            with without_the_absent(self._membership):
                self._wait_for_sums()
                self.owners.give_means()
                agreed = self._agreed()
                self.meets = self._awaited or agreed != self._in_force
                if step.agreement.votes.meet:
                    step.companion.meet()
                self._whole = True
                if self._membership.prepared(iteration, agreed):
                    self._wait(self.barrier.enter())
                if not self._membership.done(iteration):
                    return False
        except EpochError:
            return False
        self.keep()
        self._take()
        return True

    def _wait_for_sums(self) -> None:
        """Wait for the sums of turns that are due. When all votes are here, all ranks have launched those turns."""
        timeout_s, updates = self._patience_s, self.step.updates
        self.step.agreement.wait(timeout_s, self.check_finished)
        for turn in self._due:
            in_flight = updates.readiness.waits(turn.arena)
            for launch in updates.buckets[turn.arena].launches:
                if in_flight:
                    updates.readiness.wait(launch.number, timeout_s)
                else:
                    self._wait(launch.program)
                mean = updates.means.of[turn.arena][turn.slot]
                self.step.commit.summed(updates.buckets[turn.arena], mean, launch)
        for program in self.step.agreement.begin_dense():
            self._wait(program)

    @property
    def _patience_s(self) -> float:
        """Longest wait for other ranks in a step, or in an exchange of ranks that step alone."""
        outer, timeout_s = self.step.updates.schedule.outer, self.job.settings.timeout_s
        return timeout_s if outer is None or outer.grace_s is None else min(outer.grace_s, timeout_s)

    def _agreed(self) -> int:
        """Return the epoch of members in force when this step stands: another than before only if all are ready for it, no turn is
        open or in flight, and the script makes a step."""
        settled = self.step.updates.settled and not self.flushing
        return self.step.agreement.votes.members if settled else self._in_force

    def _take(self) -> None:
        """Take the sums of a step that stands, and its votes."""
        updates = self.step.updates
        self._whole = False
        self.step.agreement.decide()
        for turn in self._due:
            # Programs for other members have other blocks of rows.
            self.step.agreement.finish_rows(updates.buckets[turn.arena])
            updates.readiness.applied(turn.arena)
        if self._due:
            self.owners.stands()
        # Other members wait until all gradients that were made are applied.
        planned = self._awaited or self.step.agreement.votes.members != self._in_force
        if planned and not updates.settled:
            updates.readiness.hold()

    def _wait(self, program: int) -> None:
        self.step.engine.wait(program, self._patience_s, self.check_finished)

    @contextlib.contextmanager
    def _noting_what_is_missed(self) -> Iterator[None]:
        try:
            yield
        except EpochError:
            self.missed = True

    def _load(self, epoch: int) -> None:
        """Load programs of an epoch of members; EpochError: the epoch has ended already."""
        step = self.step
        job = self.everyone.among(self.members)
        before = step.source
        if before.timer is not None:
            for rank, member in enumerate(self.job.members):
                if member not in job.members:
                    before.timer.worker_removed(rank)
        before.stop()
        self.job = job
        step.source, compiled = followed(before, self.plan, job, epoch, self.members)
        placed = self.memory.loaded(compiled, step.engine, job.rank, f" of members' epoch {epoch}")
        self._kept.put(placed, step.engine, job.rank)
        if isinstance(step.agreement.votes, Votes):
            step.agreement.votes.load(job.hosts)
        self.barrier.load(job.hosts)
        self._companion.load(job)
        step.loading.follow(placed)
        self.owners.follow(placed, self.members)
        step.source.start_timer(())
