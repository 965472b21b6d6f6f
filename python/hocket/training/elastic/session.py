"""Session that reduces gradients in a job whose ranks may be lost: the other ranks reduce again a step that a loss interrupts.

Each step ends with a barrier, which a rank enters when all sums are there. So a rank that leaves it knows that all ranks have the
sums. If a rank has left it before a loss, the step stands for all, otherwise all repeat it without the lost ranks: it is the mean
over exactly the members of the epoch in which it stands (`crates/protocol/src/membership`). State that policies keep goes on from
the step that stood last, and policies are traced anew for the remaining ranks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from hocket import _native
from hocket.artefacts.plan import Plan
from hocket.errors import EpochError, RendezvousError
from hocket.job.rendezvous import Job
from hocket.libraries.service import Service
from hocket.members.member_messages import Regroup
from hocket.members.membership import Membership
from hocket.training.beside.spans import Spans
from hocket.training.checkpoint import states
from hocket.training.checkpoint.saved import SavedSession
from hocket.training.elastic.absent import (
    check_finished,
    gathered_without_the_absent,
    without_the_absent,
)
from hocket.training.elastic.areas import Area, areas_of, loaded
from hocket.training.elastic.barrier import Barrier
from hocket.training.elastic.followed import followed
from hocket.training.elastic.kept import Kept
from hocket.training.elastic.notice import Notice
from hocket.training.elastic.refusals import check_libraries, check_source, refusal
from hocket.training.loop.loop import Loop, workers_of
from hocket.training.memory.buckets import CompiledBucket, LoadedBucket, launches_of
from hocket.training.memory.framework import Framework
from hocket.training.programs.source import Loaded, ProgramSource
from hocket.training.step.companion import MembersCompanion
from hocket.training.step.owners import Owners
from hocket.training.step.reducing import ReducingSession
from hocket.training.step.statistics import Steps
from hocket.training.step.votes import Votes


class ElasticSession(ReducingSession):
    """Buckets, hooks and epochs of members of one distributed model.

    Ranks notice a loss in different steps: some when the one before it stands already. The script hears of it in the first step
    that is the mean of the remaining ranks, the same step on all: there `job` and its loop become those of the remaining ranks.

    Ranks that leave in order do so after a step on which all agree by votes. The script hears of it when that step is applied. A
    SIGTERM makes its rank leave so. Ranks join after such a step, too: then all meet anew (`newcomers`), with new rank numbers.
    """

    companion: MembersCompanion

    def __init__(
        self,
        framework: Framework,
        *,
        source: ProgramSource,
        job: Job,
        engine: _native.Engine,
        libraries: Service,
        spans: Spans | None,
        companion: MembersCompanion,
        loaded: Loaded,
        membership: Membership,
        loop: Loop,
        steps: int,
    ) -> None:
        """Make the session. `steps`: number that the job has made until now. UsageError: the plan has parts that cannot go on with
        other members."""
        check_source(source)
        self._areas: list[Area] = []
        self._plan: Plan
        """Plan of all that have met, in the epoch of policies in force: the remaining ranks go on with its buckets."""
        self._kept = Kept()
        self._whole = False
        """True if all sums of the step are here and not taken yet."""
        self._voted = 0
        """Smallest epoch of policies that all ranks knew in that step."""
        self._missed = False
        """True if a part of this step was not launched, because the epoch of members had ended."""
        self._in_force = 0
        """Epoch of members in which the step's votes were cast."""
        self._awaited = False
        """True if newcomers were waiting in that epoch."""
        self._meets = False
        """True if all meet newcomers when the last step that stands is applied, provided there still are any."""
        self._membership = membership
        self._loop = loop
        loop.gather = partial(gathered_without_the_absent, membership)
        self._parted: tuple[int, ...] | None = None
        """Members that train on when the step that was reduced last is applied, if others leave then."""
        self._leaves = False
        self.counted = tuple(range(job.world))
        """Members whose gradients are in the last step, by their ranks when the generation met."""
        self._members = self.counted
        """Members of the engine's epoch."""
        self.in_force = job
        """Job as these members see it, since programs were made for them."""
        self._settled = 0
        """Number of steps that stand for good, whichever rank is lost."""
        self._everyone = job
        self.meet: Callable[[Regroup], None] | None = None
        """Callback by which all ranks meet joining ones: called when a step is applied, it ends with `go_on_in`."""
        self.before_forward: Callable[[], None] | None = None
        """Callback for work still to be done after a meeting before the next forward, or before this rank ends."""
        super().__init__(
            framework,
            source=source,
            job=job,
            engine=engine,
            libraries=libraries,
            spans=spans,
            companion=companion,
            loaded=loaded,
        )
        self.iteration = self._settled = steps
        self._together.begin(steps + 1)
        self._barrier = Barrier(engine, job.hosts)
        self._notice = Notice(self.leave)

    def joinable(self) -> ReducingSession:
        """Raise UsageError: the coordinator decides which ranks take part in a step."""
        raise refusal("`join`")

    def saved(self) -> SavedSession:
        """Wait until the last step stands for good, then return the state: if this rank is shut out before that, the others may
        repeat the step without it, and its state is of no use to them."""
        if self._settled < self.iteration:
            try:
                self._meet_once_more()
            except EpochError:
                # The step stands for the remaining ranks, as this one, which is among them, has it.
                self._go_on(self.iteration - 1)
            self._settled = self.iteration
        return SavedSession.of(states.held(self.buckets, self.engine, self.in_force.rank), self.job)

    def restore(self, saved: SavedSession, *, strict: bool) -> None:
        super().restore(saved, strict=strict)
        self.keep()

    def retire(self) -> None:
        """Raise UsageError: joining ranks would not know of it."""
        raise refusal("a second model, or a model that is distributed again")

    def close(self) -> None:
        """Finish: the other ranks may still ask for what this rank knows."""
        self._notice.end()
        if not self._leaves and self.before_forward is not None:
            # Newcomers wait for this call, and hear afterwards that there are no more steps.
            with contextlib.suppress(RendezvousError):
                self.before_forward()
        self._membership.finish(self.job.settings.timeout_s)
        super().close()

    def _load(self) -> None:
        self._plan = self.source.plan(self.source.epochs.current)
        super()._load()

    def _placed(self, buckets: Sequence[CompiledBucket], epoch: int) -> list[LoadedBucket]:
        check_libraries(buckets)
        self._areas = areas_of(buckets, self.engine, self.framework.array)
        return loaded(self._areas, buckets, self.engine, f" of epoch {epoch}" if epoch else "")

    def _learn(self) -> None:
        """No-op: there are no calls of libraries (`check_libraries`)."""

    def _on_refused(self, error: Exception) -> bool:
        """Note launches of an epoch that has ended, to make them again in the next one, after backward."""
        if isinstance(error, EpochError):
            self._missed = True
            return True
        return super()._on_refused(error)

    def _end(self, *, barrier: bool) -> None:
        del barrier
        began_ns = _native.now_ns()
        if self._watch is not None:
            self._watch.computed(self._arrivals() if self._watch.profiles else {}, {})
        self.framework.check_announced()
        unmade = self._adopt_missing()
        with self._noting_what_is_missed():
            self._cast(unmade)
            self.readiness.finish()
        self._ended()
        self._reduce(unmade)
        ended_ns = _native.now_ns()
        self.source.record("wait_time", (ended_ns - began_ns) * 1e-9)
        self._hand_out()
        if self._begins:
            self._begin_epoch()
        self._under_way = False
        if not self._leaves:
            self._note()
        if self.spans is not None:
            self.spans.waited(self.iteration, began_ns, ended_ns)
        self.companion.step_ended()
        self.iteration += 1
        numbers = tuple(self._everyone.members[each] for each in self.counted)
        if numbers != tuple(each.member for each in self._loop.changes.workers):
            self._tell(self.counted, self.iteration - 1)
        if self.source.autopilot is not None:
            self.source.autopilot.step_ended()
        self._part()

    def _given(self) -> list[LoadedBucket]:
        return [sums for area in self._areas for sums in area.sums]

    def _ended(self) -> None:
        """Note that backward has ended, and launches to be reduced for it are in flight."""

    def _hand_out(self) -> None:
        """Give the optimizer the gradients of a step that stands."""
        for name in self._unmade:
            if not self._votes.made(name):
                self.framework.drop(name)
        if not self._warned:
            self._warn_of_non_finite()

    def _cast(self, unmade: Sequence[str]) -> None:
        """Cast this rank's votes. EpochError: the epoch of members has ended."""
        self._unmade = set(unmade)
        # If newer values are of a later epoch already, nothing can be launched in the engine's.
        self._in_force, self._awaited = self._membership.in_force, bool(self._membership.newcomers)
        meet, members = self.companion.end(), self._membership.vote
        look = self._together.vote(self.iteration)
        self._votes.cast(self.source.epochs.vote(), unmade, meet=meet, members=members, look=look)

    def _begin_epoch(self) -> None:
        """Begin an epoch of policies after the step just reduced: all ranks know it, and gradients move to its buckets."""
        self._begins = False
        try:
            self._load()
        except EpochError:
            self._lay_out()
            self._go_on(self.iteration)

    def _tell(self, members: Sequence[int], step: int, *, left: bool = False) -> None:
        """Tell the script of a change of members."""
        self.job = self._everyone.among(members)
        self._loop.changes.go_on(workers_of(self.job), step, left=left)

    def _part(self) -> None:
        """Begin the epoch without leaving ranks, if all ranks have agreed on it with the step that has just been reduced.

        All ranks wait for one another once more. A rank that has done so knows that all have the step: nobody needs connections of
        the old epoch any more, and the first rank that closes those to a leaver does no harm.
        """
        members = self._membership.without_leavers()
        if members is None or self._leaves:
            return
        if not set(self._members) <= set(members):
            with contextlib.suppress(EpochError):
                self._meet_once_more()
            if self._everyone.rank not in members:
                self._membership.wait_for_release(self.job.settings.timeout_s)
                self._let_go(self.iteration)
                return
            self._go_on(self.iteration - 1)
        self._parted = members

    def _let_go(self, steps: int) -> None:
        """End this rank's part: the others have gone on without it after so many steps, and no longer wait for it."""
        self._leaves, self._settled, self._begins = True, steps, False
        self.source.stop()
        self.engine.close()
        self._everyone.store.leave()

    def leave(self) -> None:
        """Leave in order: after a step that is still to come, this process ends when its optimizer has stepped."""
        self._membership.leave()

    def _stepped(self) -> None:
        super()._stepped()
        if self._parted is not None:
            self._loop.count_all()
        self._tell_of_parting()
        self._meet_newcomers()

    def _meet_newcomers(self) -> None:
        """Meet newcomers. All ranks are here or on their way: no gradients are in flight, no samples of the next step are drawn.

        Whether they meet follows from the step alone. An epoch with newcomers may have begun since, with a loss that some ranks
        have noticed in the next step already.
        """
        while self._meets and self._membership.newcomers and self.meet is not None:
            order = None
            with contextlib.suppress(EpochError), without_the_absent(self._membership):
                order = self._membership.at_edge(self.job.settings.timeout_s, self._check_finished)
            if order is None:
                # A rank was lost. The next epoch says if others still want to join.
                self._go_on(self.iteration - 1)
                continue
            self._loop.count_all()
            self.source.stop()
            self.meet(order)

    def go_on_in(
        self,
        *,
        source: ProgramSource,
        job: Job,
        engine: _native.Engine,
        libraries: Service,
        spans: Spans | None,
        companion: MembersCompanion,
        loaded: Loaded,
    ) -> None:
        """Prepare to train among the ranks that are about to meet, with their new engine and source; `met` follows."""
        self.source, self.engine, self._libraries, self.spans = source, engine, libraries, spans
        self.companion, self._loaded = companion, loaded
        self.job = self._everyone = self.in_force = job
        self.counted = self._members = tuple(range(job.world))
        self._settled, self._missed, self._whole, self._begins = self.iteration, False, False, False
        self._votes = Votes(engine, job.hosts, list(self._gradients))
        self._steps = Steps(engine, source)
        self.owners = Owners(self.framework, engine, job, self._naming_the_finished)
        self.buckets, self.launches = [], []
        self._load()
        self._together = self._together.among(self.framework, job, source, begins=self.iteration + 1)
        self._kept.put(self.buckets, engine, job.rank)
        self._barrier = Barrier(engine, job.hosts)

    def met(self, holders: Sequence[int]) -> None:
        """Tell the script and the policies that all ranks have met. `holders`: ranks that were there before."""
        self._membership.met()
        self._loop.met(self._everyone)
        self._tell(self.counted, self.iteration)
        self.source.start_timer(rank for rank in range(self._everyone.world) if rank not in holders)

    def _begin(self) -> None:
        # A parting may be left from a step that was not applied, such as one with non-finite gradients.
        self._tell_of_parting()
        super()._begin()

    def _tell_of_parting(self) -> None:
        if self._leaves:
            raise SystemExit(0)
        if self._parted is not None:
            parted, self._parted = self._parted, None
            self._tell(parted, self.iteration, left=True)

    def _reduce(self, unmade: Sequence[str]) -> None:
        """Repeat the step until it stands. Launches of this epoch are in flight."""
        step = self.iteration
        if self._stands(step):
            self.counted = self._members
            self._note_applied()
            return
        while not self._go_on(step):
            with self._noting_what_is_missed():
                self._cast(unmade)
                self._launch_again()
            if self._stands(step):
                self.counted = self._members
                return

    def _note_applied(self) -> None:
        """Let the step's memory fill again: the step stands in the epoch in which backward launched it."""
        for launch in self.launches:
            self.readiness.applied(launch.number)

    def _launch_again(self) -> None:
        """Launch the whole step in a new epoch."""
        for launch in self.launches:
            self.engine.launch(launch.program)

    def _wait_for_sums(self) -> None:
        for launch in self.launches:
            self._wait(launch.program)

    def _agreed(self) -> int:
        """Return the epoch of members in force when this step stands: another than before, if all are ready for it."""
        return self._votes.members

    def _stands(self, step: int) -> bool:
        """Wait for the step's sums, and until all ranks have them; return False if the epoch of members ends before that."""
        if self._missed:
            return False
        try:
            with without_the_absent(self._membership):
                self._wait_for_sums()
                self._voted = self._votes.count(self.job.settings.timeout_s)
                agreed = self._agreed()
                self._meets = self._awaited or agreed != self._in_force
                if self._votes.meet:
                    self.companion.meet()
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

    def keep(self) -> None:
        """Copy the state that policies keep, which is now as after the last step that stands."""
        if self.source.policies:
            self._kept.take(self.buckets, self.engine, self.in_force.rank)

    def _take(self) -> None:
        """Take the sums of a step that stands as its gradients, and count its votes."""
        self._whole = False
        for sums in self._given():
            self.framework.show(sums)
        self._begins = self.source.decide(self._voted)
        self._together.counted(self._votes)

    @contextlib.contextmanager
    def _noting_what_is_missed(self) -> Iterator[None]:
        try:
            yield
        except EpochError:
            self._missed = True

    def _wait(self, program: int) -> None:
        self.engine.wait(program, self.job.settings.timeout_s, self._check_finished)

    def _meet_once_more(self) -> None:
        """Wait for all ranks between two steps. A rank that has met all others may finish before this rank does."""
        finished = partial(self._check_finished, self.iteration - 1)
        with without_the_absent(self._membership):
            self.engine.wait(self._barrier.enter(), self.job.settings.timeout_s, finished)

    def _check_finished(self, step: int | None = None) -> None:
        """Raise PeerError if another rank no longer takes part in that step; None: the step under way."""
        step = self.iteration if step is None else step
        check_finished(self._membership.finished, self._members, self._everyone, step)

    def _go_on(self, step: int) -> bool:
        """Begin the epoch of the remaining ranks. Return whether the step stands: a rank had seen that all have its sums."""
        self.counted = self._members
        kept = self._kept
        if self._whole and self.source.policies:
            # The engine's next epoch frees the programs, and with them their state.
            kept = Kept()
            kept.take(self.buckets, self.engine, self.in_force.rank)
        while True:
            epoch = self._membership.next_epoch(self.job.settings.timeout_s)
            if epoch is None:
                if self._whole:
                    self._take()
                self._let_go(step + 1)
                return True
            self._members = epoch.members
            stands = self._membership.committed > step
            if stands and self._whole:
                self._kept = kept
                self._take()
            self._whole = False
            if self._begins:
                self._lay_out()
            self._missed = False
            try:
                self._load_members(epoch.number)
            except EpochError:
                continue
            self._settled = self._membership.committed
            self._membership.resumed(epoch.number, again=not stands)
            return stands

    def _lay_out(self) -> None:
        """Lay out the buckets of an epoch of policies that begins after the last step. Others may have loaded it already."""
        self._begins = False
        current = self.source.epochs.current
        self._plan = self.source.plan(current)
        self._areas = areas_of(self.source.buckets(), self.engine, self.framework.array)

    def _load_members(self, epoch: int) -> None:
        """Load programs of an epoch of members; EpochError: the epoch has ended already."""
        job = self._everyone.among(self._members)
        before = self.source
        if before.timer is not None:
            for rank, member in enumerate(self.in_force.members):
                if member not in job.members:
                    before.timer.worker_removed(rank)
        before.stop()
        self.in_force = job
        self.source, compiled = followed(before, self._plan, job, epoch)
        self.buckets = loaded(self._areas, compiled, self.engine, f" of members' epoch {epoch}")
        self.launches = launches_of(self.buckets)
        self._kept.put(self.buckets, self.engine, job.rank)
        if isinstance(self._votes, Votes):
            self._votes.load(job.hosts)
        self._barrier.load(job.hosts)
        self.companion.load(job)
        self._count_gradients(moves=False)
        self._steps = Steps(self.engine, self.source)
        self._loaded(self.source, self.buckets)
        self.source.start_timer(())
