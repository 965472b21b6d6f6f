"""This process as a member of an elastic job: it follows the coordinator's decisions, and begins the engine's epochs.

A thread hears the coordinator, also while the script computes: it stops the engine and reports at once. An epoch begins where the
script can follow: in `next_epoch`, which the session calls. Code that changes the machine or the engine's epoch holds one lock.

Machine and engine are of one generation of members (`coordination`); the connection to the coordinator stays. A member is a number
that its process keeps; the engine and the session use ranks of the generation's job.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from hocket import _native
from hocket.errors import EpochError, Error, PeerError
from hocket.job.rendezvous import Job
from hocket.members import member_errors
from hocket.members import member_messages as messages
from hocket.members.arrival import Arrival
from hocket.members.departure import Departure
from hocket.members.epoch import FENCE_TIMEOUT_S, QUIESCE_TIMEOUT_S, Epoch
from hocket.members.handover import Handover
from hocket.members.joining import Joining
from hocket.members.leavers import Leavers
from hocket.members.link import Link
from hocket.members.meetings import WAKE_S, Meetings
from hocket.members.patience import Patience
from hocket.members.progress import Progress
from hocket.members.step_numbers import StepNumbers
from hocket.settings import Settings

LOOK_S = 0.02
"""Time between the thread's checks whether the engine has lost a peer while nothing waits for it."""
JOINERS_HOST = 1 << 24
"""First host number for joiners, beyond the numbers of hosts whose members share memory."""

log = logging.getLogger("hocket.membership")


class Membership:
    """Member of an elastic job, from when it comes to the coordinator to `close`."""

    def __init__(self, settings: Settings, secret: bytes, me: str, arrival: Arrival | None = None) -> None:
        """Connect to the coordinator, or go on from an `arrival`. `me`: process, for people. RendezvousError: there is none."""
        self._settings, self._me = settings, me
        self._changed = threading.Condition(threading.RLock())
        self._machine: _native.Participant | None = None
        self._engine: _native.Engine | None = None
        self._ranks: tuple[int, ...] = ()
        """Members of the generation, by rank."""
        self.number = -1
        """Number of this member; negative before the coordinator has given one."""
        self._host = ""
        self._patience = Patience(settings)
        self._meetings = Meetings(self._changed)
        self.joining = Joining(
            self._patience.joining_s, self._changed, self._tell, self._meetings, self._over_why
        )
        self._numbers = StepNumbers()
        self._pending: deque[Epoch] = deque()
        self._members: tuple[int, ...] = ()
        self._exit: str | None = None
        self._over = self._released = self._closing = self._shut_out = False
        self.progress = Progress(self._changed, self._tell, lambda: self._members[:1] == (self.number,))
        self._leavers = Leavers()
        self._gone: set[int] = set()
        """Lost members whose processes have ended, as this member has told the coordinator."""
        self._departure = Departure()
        self.waits = False
        """True while the script waits for others elsewhere than here."""
        self.committed = 0
        """Number of steps that stand."""
        self.finished: dict[int, int] = {}
        """Numbers of steps of members whose scripts have ended, by rank."""
        self._silence_max_s = settings.silence_max_s(elastic=True)
        self.handover = Handover(self._changed, self._tell, lambda: self._members, self._over_why)
        self._link = Link(settings, secret, arrival)
        self._thread = threading.Thread(target=self._listen, name="hocket-member", daemon=True)
        self._thread.start()

    def begin(self, job: Job, engine: _native.Engine, *, generation: int = 0, steps: int = 0) -> None:
        """Wait until all of a generation are ready for their first step, which is number `steps`. Every rank must call it.

        If a member is lost before that, the others meet once more; afterwards, they go on in the next epoch.
        RendezvousError: ranks are missing, or those that are here are to meet once more.
        """
        timeout_s = self._patience.founding_s
        with self._changed:
            self._meetings.must_be_newest(generation, self._me)
            self._engine, self._ranks, self.number = engine, job.members, job.members[job.rank]
            self._me, self._host = f"rank {job.rank} on {job.host}", job.host
            self._numbers, self.committed = StepNumbers(), steps
            self.progress.begin(generation, steps)
            self._machine = self._participant(job.hosts.index(job.host), founds=True)
            self._pending.clear()
            self._leavers, self._members = Leavers(), ()
            self.finished.clear()
            who = f"rank {self.number} on {job.host} (process {os.getpid()})"
            self._tell(messages.Comes(member=self.number, who=who, generation=generation))
            self._act(self._machine.linked(time.monotonic()))
            found = self._changed.wait_for(
                lambda: self._pending or self._exit or self._meetings.called_after(generation), timeout_s
            )
            self._meetings.must_be_newest(generation, self._me)
            if not found or self._exit:
                self._tell(messages.CannotMeet(generation=generation, missing=()))
                raise member_errors.not_founded(job.world, timeout_s, self._exit)
            # A member may have been lost since all have come: then another epoch follows the first.
            self._pending.popleft()
            self._departure.ask_again()

    def next_meeting(self, after: int, when: str) -> messages.Regroup:
        """Wait for a meeting later than generation `after`; return the newest.

        RendezvousError: the coordinator will call none, or calls none in time. `when`: text on when it would.
        """
        timeout_s = self._patience.again_s
        with self._changed:
            return self._meetings.later(after, timeout_s, who=self._me, when=when, why_none=self._over_why)

    def could_not_meet(self, generation: int, ranks: Sequence[int]) -> None:
        """Complain of these ranks of a meeting, so that the others are called to another one without the rank that most miss."""
        with self._changed:
            complaint = self._meetings.complaint(generation, ranks)
            if complaint is not None:
                self._tell(complaint)

    def _over_why(self) -> str | None:
        return "the job has ended" if self._over and self._exit is None else self._exit

    @property
    def newcomers(self) -> Sequence[int]:
        """Members of the epoch in force that are not in this generation: all wait for them after the step."""
        with self._changed:
            return [each for each in self._members if each not in self._ranks]

    def at_edge(self, timeout_s: float, meanwhile: Callable[[], None]) -> messages.Regroup | None:
        """Wait, with the last step applied, until all are so far and the next generation meets. None: the members change before
        that.

        `meanwhile` may raise an error that makes waiting useless. PeerError: the job ends, or not all have come in time.
        """
        timeout_s = self._patience.edge_s(timeout_s)
        deadline_s = time.monotonic() + timeout_s
        said = None
        with self._changed:
            while True:
                self._note_losses()
                if self._meetings.newest is not None and self._machine is None:
                    return self._meetings.newest
                if (why := self._over_why()) is not None:
                    raise PeerError(f"{self._me}: {why}")
                if self._pending or not self.newcomers:
                    return None
                meanwhile()
                if time.monotonic() > deadline_s:
                    hosts = self.joining.hosts_of(self.newcomers)
                    raise member_errors.not_all_came(self._me, hosts, timeout_s)
                self.come()
                epoch = None if self._machine is None else self._machine.in_force
                if epoch is not None and epoch != said:
                    said = epoch
                    self._tell(messages.AtEdge(epoch=epoch))
                self._changed.wait(WAKE_S)

    @property
    def in_force(self) -> int:
        """Epoch in which this member trains. EpochError: the generation is over."""
        with self._changed:
            return self._of_generation.in_force or 0

    @property
    def vote(self) -> int:
        """Newest epoch that this member is ready for."""
        with self._changed:
            return self._of_generation.vote

    @property
    def _of_generation(self) -> _native.Participant:
        """Machine of the generation. EpochError: the generation is over."""
        if self._machine is None:
            raise EpochError(f"{self._me}: the members of the job meet anew")
        return self._machine

    def leave(self) -> None:
        """Ask the coordinator to go on without this member after a step, in any thread or signal handler."""
        self._departure.ask()

    def prepared(self, step: int, vote: int) -> bool:
        """Report that all sums of a step, and the smallest vote, are here. Return whether the step goes on to the barrier; if not,
        the members change."""
        with self._changed:
            number, now_s = self._numbers.prepares(step), time.monotonic()
            return "barrier" in self._act(self._of_generation.prepared(number, vote, now_s))

    def done(self, step: int) -> bool:
        """Report that the step's barrier is complete here. Return whether the step stands; if not, the coordinator decides."""
        with self._changed:
            self._act(self._of_generation.done(self._numbers.next, time.monotonic()))
            return self.committed > step

    def without_leavers(self) -> tuple[int, ...] | None:
        """Return, once, the members without those that leave after the step which has just come to stand; None if none leave."""
        with self._changed:
            members = self._leavers.take()
            if members is None:
                return None
            self.progress.stop()
            return self._in_ranks(members)

    def wait_for_release(self, timeout_s: float) -> None:
        """Wait until all others have begun an epoch without this member: they may need it until then."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._exit or self._over, timeout_s):
                log.warning("%s: leaves unreleased after %g s", self._me, timeout_s)

    def next_epoch(self, timeout_s: float) -> Epoch | None:
        """Begin the epoch after the one in force on this rank's engine; it has no programs yet. None: this member has left with the
        step that it has prepared, which stands.

        PeerError: the others go on without this rank, the job ends, or nothing is decided in time.
        """
        timeout_s = self._patience.decision_s(timeout_s)
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            self._note_losses()
            while True:
                if self._released:
                    return None
                self.come()
                epoch = self._due()
                if epoch is not None:
                    try:
                        # Members whose scripts have ended stopped when they reported, and end by themselves.
                        left = {*self._in_ranks(self._leavers.all), *self.finished}
                        assert self._engine is not None  # noqa: S101  # there is a machine
                        self._engine.resume(epoch.number, epoch.members, FENCE_TIMEOUT_S, left=sorted(left))
                    except EpochError:
                        # A member is lost already: another epoch follows this one.
                        self._note_losses()
                    else:
                        return epoch
                    continue
                if time.monotonic() > deadline_s:
                    raise member_errors.undecided(self._me, timeout_s)
                self._changed.wait(WAKE_S)

    def met(self) -> None:
        """Report that training goes on in the first epoch of a generation."""
        with self._changed:
            self.resumed(self.in_force, again=False)

    def resumed(self, epoch: int, *, again: bool) -> None:
        """Report that training goes on in an epoch. `again`: a step was reduced anew."""
        with self._changed:
            self.progress.resumed(epoch, again=again, steps=self.committed)

    def finish(self, timeout_s: float) -> None:
        """Report that the script has ended in order, and wait until all others' have, since they may still need to ask this one.

        PeerError: the others have gone on without this rank, and may have done its last step again, or the job has ended.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            if self._closing or self._released or (self._machine is None and self._engine is None):
                return
            self.progress.report(ends=True)
            self._tell(messages.Finished(steps=self.committed))
            if self._machine is not None:
                self._act(self._machine.ended(time.monotonic()))
            while not self._over:
                if self._shut_out:
                    raise PeerError(f"{self._me}: {self._exit}", why="left")
                if self._exit:
                    return
                if time.monotonic() > deadline_s:
                    log.warning("%s: not all ranks have finished %g s after this one", self._me, timeout_s)
                    return
                if self._pending:
                    self.next_epoch(timeout_s)
                else:
                    self._changed.wait(WAKE_S)

    def give_up(self, rank: int | None = None) -> None:
        """Report that the script waits in vain for that rank, or (None) longer than it may. EpochError: the generation is over."""
        with self._changed:
            machine, now_s = self._of_generation, time.monotonic()
            self._act(machine.overdue(now_s) if rank is None else machine.lost(self._ranks[rank], now_s))

    def come(self) -> None:
        """Report that the script has come to where it waits for others, or for a decision."""
        with self._changed:
            if self._machine is not None and self._machine.in_force is None:
                self._act(self._machine.waits(time.monotonic()))

    def close(self) -> None:
        """Take no further part; idempotent. The engine closes afterwards."""
        self._closing = True
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._link.close()

    def _in_ranks(self, members: Sequence[int]) -> tuple[int, ...]:
        return tuple(self._ranks.index(each) for each in members if each in self._ranks)

    def _due(self) -> Epoch | None:
        """Return the last epoch that was decided if it is in force, else None. PeerError: there will be none."""
        if self._exit is not None:
            raise PeerError(f"{self._me}: {self._exit}")
        while self._pending:
            epoch = self._pending.popleft()
            if self._machine is not None and epoch.number == self._machine.in_force:
                return epoch
        return None

    def _listen(self) -> None:
        while not self._closing:
            try:
                data = self._link.arrived(LOOK_S)
                with self._changed:
                    for message in self._link.read(data):
                        self._hear(message)
                    self._look_at_the_coordinator()
                    self._look()
            except OSError as error:
                if not self._comes_back(str(error)):
                    return
            except Exception as error:  # of any kind, since no other thread hears the coordinator
                self._end(str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}")
                return

    def _look(self) -> None:
        """Tell the machine of local events: losses, waits, the time, and a wish to leave."""
        with self._changed:
            self._note_losses()
            if self.waits:
                self.come()
            if self._machine is not None:
                self._act(self._machine.tick(time.monotonic()))
            if self._machine is not None and self._departure.due():
                self._act(self._machine.leave_asked(time.monotonic()))

    def _look_at_the_coordinator(self) -> None:
        """Tell the machine whether the coordinator can be heard."""
        seen = self._link.look()
        if seen is not None and self._machine is not None:
            self._act(self._machine.unlinked(time.monotonic()))
            if seen == "back":
                self._act(self._machine.linked(time.monotonic()))

    def _comes_back(self, why: str) -> bool:
        """Wait for a successor of a coordinator that is gone. Return whether one has come and resumes from the journal."""
        patience_s = self._settings.coordinator_timeout_s
        with self._changed:
            if self._over or self._closing or self._exit or patience_s is None:
                self._end(why)
                return False
            if self._machine is not None:
                self._act(self._machine.unlinked(time.monotonic()))
        if not self._link.renew(
            self._me, why, patience_s, self._look, lambda: self._closing or bool(self._exit)
        ):
            self._end(f"{why}; no other one came within {patience_s:g} s")
            return False
        with self._changed, contextlib.suppress(OSError):
            newest = self._meetings.newest
            generation = newest.generation if newest else 0 if self._ranks else None
            if (number := self.number) >= 0:
                who = f"rank {number} on {self._host} (process {os.getpid()})"
                self._tell(
                    messages.Back(
                        member=number,
                        who=who,
                        host=self._host,
                        generation=generation,
                        state=self.joining.state,
                        job=self._link.job,
                    )
                )
            if self._machine is not None:
                self._act(self._machine.linked(time.monotonic()))
            self._link.tell_again()
        return True

    def _hear(self, message: messages.FromCoordinator) -> None:
        match message:
            case messages.Orders(order=order):
                self._meetings.members_change()
                if self._machine is not None:
                    self._act(self._machine.order(order, time.monotonic()))
            case messages.OtherFinished(member=member, steps=steps):
                self.finished.update(dict.fromkeys(self._in_ranks([member]), steps))
            case messages.Welcome() as welcome:
                if self.number < 0:
                    self._wait_as(welcome.member, welcome.host)
                elif welcome.member != self.number:
                    self.progress.report()
                    self.joining.welcome(welcome)
            case messages.Regroup() as meeting:
                self._meetings.newest, self._machine = meeting, None
                self.joining.met(meeting.members)
                self._link.forget(messages.Ready, messages.AtEdge, messages.Gives, messages.Lacks)
                self.progress.stop()
            case messages.Gives() as gives:
                self.handover.hear(gives)
            case messages.Answer(text=text):
                self._exit, self._shut_out = text, True
                self._interrupt(text)
            case messages.Over():
                self._over = True
            case messages.MustLeave():
                self._departure.ask()
            case messages.Ends():
                self._departure.job_ends()
        self._changed.notify_all()

    def _wait_as(self, member: int, host: str) -> None:
        """Wait to become that member, and take part in earlier decisions of the others."""
        self._link.forget(messages.Joins)
        self.number, self._me, self._host = member, f"rank {member} on {host}", host
        # It shares no host with others yet.
        self._machine = self._participant(JOINERS_HOST + member, founds=False)
        self._act(self._machine.linked(time.monotonic()))

    def _participant(self, host: int, *, founds: bool) -> _native.Participant:
        return _native.Participant(
            member=self.number,
            host=host,
            founds=founds,
            coordinator_patience_s=self._settings.coordinator_timeout_s or self._silence_max_s,
            now_s=time.monotonic(),
        )

    def _note_losses(self) -> None:
        if self._over or self._closing or self._exit or self._machine is None or self._engine is None:
            return
        for rank in self._engine.lost:
            self._act(self._machine.lost(self._ranks[rank], time.monotonic()))
        for member in {self._ranks[rank] for rank in self._engine.gone} - self._gone:
            self._gone.add(member)
            self._act(self._machine.gone(member, time.monotonic()))

    def _act(self, actions: Sequence[_native.MemberAction]) -> set[str]:
        """Do the machine's actions, in order. Return their kinds."""
        waiting, kinds = deque(actions), set()
        while waiting and self._machine is not None:
            action = waiting.popleft()
            kinds.add(action.kind)
            match action.kind:
                case "send" if action.bytes is not None:
                    self._tell(messages.Notes(note=action.bytes))
                case "quiesce":
                    self.progress.stop()
                    # A process that waits to join has no engine yet, although it may already have replaced a lost member.
                    if self._engine is not None:
                        self._engine.quiesce("the members of the job change", QUIESCE_TIMEOUT_S)
                    waiting.extend(self._machine.quiesced(time.monotonic()))
                case "commit":
                    self.committed = self._numbers.commits(action.step or 0)
                case "prepare":
                    self.progress.report()
                    # The epoch's programs are made when the epoch begins.
                    waiting.extend(self._machine.loaded(action.epoch or 0, time.monotonic()))
                case "enter":
                    self._enter(action)
                case "left":
                    self._released, self._exit = True, action.why
                    self._leavers.leave(self._members, self.number)
                case "exit":
                    self._exit, self._shut_out = action.why, True
                    self._interrupt(action.why or "")
        self._changed.notify_all()
        return kinds

    def _enter(self, decision: _native.MemberAction) -> None:
        members = tuple(decision.members)
        some_left = self._leavers.decided(self._members, members, decision.evicted)
        self._members = members
        if some_left or decision.step is not None:
            self._pending.append(Epoch(decision.epoch or 0, self._in_ranks(members)))

    def _interrupt(self, why: str) -> None:
        if self._engine is not None:
            with contextlib.suppress(Error):
                self._engine.interrupt(why)

    def _end(self, why: str) -> None:
        """End this member's part, since the coordinator is gone."""
        with self._changed:
            if not (self._over or self._closing):
                self._exit = self._exit or f"the coordinator is gone: {why}"
                self._interrupt(self._exit)
            self._changed.notify_all()

    def _tell(self, message: messages.FromMember) -> None:
        # The thread notices a lost connection, too; lasting messages are repeated to the next coordinator.
        with contextlib.suppress(OSError):
            self._link.tell(message)
