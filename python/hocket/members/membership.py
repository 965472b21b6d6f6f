"""This process as a member of an elastic job: its side of what the coordinator decides, and the engine's epochs that follow.

A thread hears the coordinator, also while the script computes: it stops the engine and reports at once. An epoch begins where
the script can follow: in `next_epoch`, which the session calls. Whatever changes the machine or the engine's epoch holds one lock.

Machine and engine are of one generation of members (`coordination`); the connection to the coordinator stays. Members are numbers
that processes keep, and ranks of the generation's job where the engine or the session is concerned.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from hocket import __version__, _native
from hocket.errors import EpochError, Error, PeerError
from hocket.job.rendezvous import Job
from hocket.members import member_errors
from hocket.members import member_messages as messages
from hocket.members.departure import Departure
from hocket.members.epoch import DECIDES_IN, FENCE_TIMEOUT_S, QUIESCE_TIMEOUT_S, Epoch
from hocket.members.handover import Handover
from hocket.members.leavers import Leavers
from hocket.members.link import Link
from hocket.members.meetings import WAKE_S, Meetings
from hocket.settings import Settings

LOOK_S = 0.02
"""How often the thread looks whether the engine has lost a peer while nothing waits for it."""
JOINERS_HOST = 1 << 24
"""Beyond the numbers of hosts whose members share memory."""

log = logging.getLogger("hocket.membership")


class Membership:
    """One member of an elastic job, from when it comes to the coordinator to `close`."""

    def __init__(self, settings: Settings, secret: bytes, me: str) -> None:
        """Come to the coordinator. `me`: this process, for people. RendezvousError: it cannot be reached."""
        self._settings, self._me = settings, me
        self._changed = threading.Condition(threading.RLock())
        self._machine: _native.Participant | None = None
        self._engine: _native.Engine | None = None
        self._ranks: tuple[int, ...] = ()
        """The generation's members, by rank."""
        self.number = -1
        """This member's; negative before the coordinator has given it one."""
        self._host = ""
        self._hosts: dict[int, str] = {}
        """Of those that wait to join, or have, as far as a coordinator has said so."""
        self._meetings = Meetings(self._changed)
        self._first = 0
        """The step that the generation's machine calls 0."""
        self._pending: deque[Epoch] = deque()
        self._members: tuple[int, ...] = ()
        self._exit: str | None = None
        self._over = self._released = self._closing = self._shut_out = False
        self._stopped_s: float | None = None
        self._leavers = Leavers()
        self._gone: set[int] = set()
        """Lost members whose processes have ended, as the coordinator knows from this one."""
        self._departure = Departure()
        self.waits = False
        """Whether the script waits for others elsewhere than here."""
        self.committed = 0
        """Steps that stand."""
        self.finished: dict[int, int] = {}
        """Members whose scripts have ended, by their ranks, and after how many steps."""
        self._silence_max_s = settings.silence_max_s(elastic=True)
        self.handover = Handover(self._changed, self._tell, lambda: self._members, self._over_why)
        self._link = Link(settings, secret)
        self._thread = threading.Thread(target=self._listen, name="hocket-member", daemon=True)
        self._thread.start()

    def begin(self, job: Job, engine: _native.Engine, *, generation: int = 0, steps: int = 0) -> None:
        """Wait until all of a generation are ready for their first step, which is number `steps`. Every rank must call it.

        If one is lost before that, the others meet once more; afterwards, they go on in the next epoch.
        RendezvousError: ranks are missing, or those that are here are to meet once more.
        """
        timeout_s = self._settings.with_another_launcher_s(job.settings.start_timeout_s)
        timeout_s += self._settings.rejoin_timeout_s or 0.0
        with self._changed:
            self._meetings.must_be_newest(generation, self._me)
            self._engine, self._ranks, self.number = engine, job.members, job.members[job.rank]
            self._me, self._host = f"rank {job.rank} on {job.host}", job.host
            self._first = self.committed = steps
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
            # Somebody may have been lost since all have come: then another epoch follows the first.
            self._pending.popleft()
            self._departure.ask_again()

    def join(self, host: str, timeout_s: float) -> messages.Regroup:
        """Become a member of a job that trains. Waits until its members wait for this one: where they meet.

        RendezvousError: the coordinator refuses, the job ends, or its members do not come to the end of a step in time.
        """
        with self._changed:
            number = self._settings.member
            self._tell(messages.Joins(host=host, process=os.getpid(), version=__version__, member=number))
        return self.next_meeting(0, timeout_s, "they meet newcomers at the end of a step")

    def next_meeting(self, after: int, timeout_s: float, when: str) -> messages.Regroup:
        """The newest meeting later than generation `after`, once the coordinator has called it.

        RendezvousError: the coordinator wants none any more, or calls none in time, which says `when` it would.
        """
        with self._changed:
            return self._meetings.later(after, timeout_s, who=self._me, when=when, why_none=self._over_why)

    def could_not_meet(self, generation: int, ranks: Sequence[int]) -> None:
        """Complain of these ranks of a meeting, so that the others are called to another one without whom most miss."""
        with self._changed:
            complaint = self._meetings.complaint(generation, ranks)
            if complaint is not None:
                self._tell(complaint)

    def _over_why(self) -> str | None:
        return "the job has ended" if self._over and self._exit is None else self._exit

    @property
    def newcomers(self) -> Sequence[int]:
        """The members of the epoch in force that are not in this generation: all wait for them after the step."""
        with self._changed:
            return [each for each in self._members if each not in self._ranks]

    def at_edge(self, timeout_s: float, meanwhile: Callable[[], None]) -> messages.Regroup | None:
        """The last step is applied: wait until all are so far, and the next generation meets. None: the members change before that.

        `meanwhile` may raise what makes waiting useless. PeerError: the job ends, or not all have come in time.
        """
        timeout_s += self._settings.rejoin_timeout_s or 0.0
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
                    hosts = {each: self._hosts.get(each, "an unknown host") for each in self.newcomers}
                    raise member_errors.not_all_came(self._me, hosts, timeout_s)
                self.come()
                epoch = None if self._machine is None else self._machine.in_force
                if epoch is not None and epoch != said:
                    said = epoch
                    self._tell(messages.AtEdge(epoch=epoch))
                self._changed.wait(WAKE_S)

    @property
    def in_force(self) -> int:
        """The epoch in which this member trains. EpochError: the generation is over."""
        with self._changed:
            return self._of_generation.in_force or 0

    @property
    def vote(self) -> int:
        """The newest epoch that this member is ready for."""
        with self._changed:
            return self._of_generation.vote

    @property
    def _of_generation(self) -> _native.Participant:
        """The machine. EpochError: the generation is over."""
        if self._machine is None:
            raise EpochError(f"{self._me}: the members of the job meet anew")
        return self._machine

    def leave(self) -> None:
        """Ask the coordinator to go on without this member after a step. In any thread, and in handlers of signals."""
        self._departure.ask()

    def prepared(self, step: int, vote: int) -> bool:
        """All sums of a step are here, and the smallest vote. Whether the step goes on to the barrier; else the members change."""
        with self._changed:
            machine = self._of_generation
            return "barrier" in self._act(machine.prepared(step - self._first, vote, time.monotonic()))

    def done(self, step: int) -> bool:
        """The step's barrier is complete here. Whether the step stands; else that is for the coordinator to decide."""
        with self._changed:
            self._act(self._of_generation.done(step - self._first, time.monotonic()))
            return self.committed > step

    def without_leavers(self) -> tuple[int, ...] | None:
        """The members without those that leave after the step which has just come to stand, if any do; given once."""
        with self._changed:
            members = self._leavers.take()
            if members is None:
                return None
            self._stopped_s = self._stopped_s or time.monotonic()
            return self._in_ranks(members)

    def wait_for_release(self, timeout_s: float) -> None:
        """The others have begun an epoch without this member: they may need it until all have."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._exit or self._over, timeout_s):
                log.warning("%s: leaves unreleased after %g s", self._me, timeout_s)

    def next_epoch(self, timeout_s: float) -> Epoch | None:
        """The epoch that follows the one in force, begun on this rank's engine; it has no programs yet. None: this member has left
        with the step that it has prepared, which stands.

        Raises PeerError: the others go on without this rank, the job ends, or nothing is decided in time.
        """
        # The coordinator waits for reports, and for those that do not come, by its own clock.
        timeout_s += (self._settings.rejoin_timeout_s or 0.0) + DECIDES_IN * self._silence_max_s
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
                        # Those whose scripts have ended stopped when they reported, and end by themselves.
                        left = {*self._in_ranks(self._leavers.all), *self.finished}
                        assert self._engine is not None  # noqa: S101  # there is a machine
                        self._engine.resume(epoch.number, epoch.members, FENCE_TIMEOUT_S, left=sorted(left))
                    except EpochError:
                        # Lost already: another epoch follows this one.
                        self._note_losses()
                    else:
                        return epoch
                    continue
                if time.monotonic() > deadline_s:
                    raise member_errors.undecided(self._me, timeout_s)
                self._changed.wait(WAKE_S)

    def met(self) -> None:
        """Training goes on in the first epoch of a generation."""
        with self._changed:
            self.resumed(self.in_force, again=False)

    def resumed(self, epoch: int, *, again: bool) -> None:
        """Training goes on in an epoch. `again`: a step was reduced anew."""
        with self._changed:
            took_s = 0.0 if self._stopped_s is None else time.monotonic() - self._stopped_s
            self._stopped_s = None
            self._tell(messages.Resumed(epoch=epoch, took_s=took_s, again=again, steps_before=self._first))

    def finish(self, timeout_s: float) -> None:
        """The script has ended in order. Waits until all others' have, since they may still ask what this one knows.

        PeerError: the others have gone on without this rank, and may have done its last step again, or the job has ended.
        """
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            if self._closing or self._released or (self._machine is None and self._engine is None):
                return
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
        """The script waits in vain for that rank, or longer than it may. EpochError: the generation is over."""
        with self._changed:
            machine, now_s = self._of_generation, time.monotonic()
            self._act(machine.overdue(now_s) if rank is None else machine.lost(self._ranks[rank], now_s))

    def come(self) -> None:
        """The script has come to where it waits for others, or for what is decided."""
        with self._changed:
            if self._machine is not None and self._machine.in_force is None:
                self._act(self._machine.waits(time.monotonic()))

    def close(self) -> None:
        """Take no further part; idempotent. The engine closes after it."""
        self._closing = True
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._link.close()

    def _in_ranks(self, members: Sequence[int]) -> tuple[int, ...]:
        """Ranks of those that are in this generation."""
        return tuple(self._ranks.index(each) for each in members if each in self._ranks)

    def _due(self) -> Epoch | None:
        """The last epoch that was decided, if nothing has happened to it since. PeerError: there will be none."""
        if self._exit is not None:
            raise PeerError(f"{self._me}: {self._exit}")
        while self._pending:
            epoch = self._pending.popleft()
            if self._machine is not None and epoch.number == self._machine.in_force:
                return epoch
        return None

    def _listen(self) -> None:
        """The thread."""
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
            except Exception as error:  # whatever it is, nobody else hears the coordinator
                self._end(str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}")
                return

    def _look(self) -> None:
        """What has happened here that the machine does not know."""
        with self._changed:
            self._note_losses()
            if self.waits:
                self.come()
            if self._machine is not None:
                self._act(self._machine.tick(time.monotonic()))
            if self._machine is not None and self._departure.due():
                self._act(self._machine.leave_asked(time.monotonic()))

    def _look_at_the_coordinator(self) -> None:
        """Whether it can be heard is for the machine to know."""
        seen = self._link.look()
        if seen is not None and self._machine is not None:
            self._act(self._machine.unlinked(time.monotonic()))
            if seen == "back":
                self._act(self._machine.linked(time.monotonic()))

    def _comes_back(self, why: str) -> bool:
        """The coordinator is gone: whether there is another one, which goes on from its journal."""
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
                self._tell(messages.Back(member=number, who=who, host=self._host, generation=generation))
            if self._machine is not None:
                self._act(self._machine.linked(time.monotonic()))
            self._link.tell_again()
        return True

    def _hear(self, message: messages.FromCoordinator) -> None:
        match message:
            case messages.Orders(order=order):
                if self._machine is not None:
                    self._act(self._machine.order(order, time.monotonic()))
            case messages.OtherFinished(member=member, steps=steps):
                self.finished.update(dict.fromkeys(self._in_ranks([member]), steps))
            case messages.Welcome(member=member, host=host):
                self._hosts[member] = host
                if self.number < 0:
                    self._wait_as(member, host)
            case messages.Regroup() as meeting:
                self._meetings.newest, self._machine = meeting, None
                self._link.forget(messages.AtEdge, messages.Gives, messages.Lacks)
                self._stopped_s = self._stopped_s or time.monotonic()
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
        """This process is to become that member, and takes part in what the others decide before."""
        self._link.forget(messages.Joins)
        self.number, self._me, self._host = member, f"rank {member} on {host}", host
        # Of others' hosts it shares none yet.
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
        """Do what the machine wants, in order; the kinds of that."""
        waiting, kinds = deque(actions), set()
        while waiting and self._machine is not None:
            action = waiting.popleft()
            kinds.add(action.kind)
            match action.kind:
                case "send" if action.bytes is not None:
                    self._tell(messages.Notes(note=action.bytes))
                case "quiesce":
                    self._stopped_s = self._stopped_s or time.monotonic()
                    # Who waits to join has none, and may be a member already in the place of one that was lost.
                    if self._engine is not None:
                        self._engine.quiesce("the members of the job change", QUIESCE_TIMEOUT_S)
                    waiting.extend(self._machine.quiesced(time.monotonic()))
                case "commit":
                    self.committed = self._first + (action.step or 0) + 1
                case "prepare":
                    # Its programs are made when it begins.
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
        """Nothing more comes of the coordinator."""
        with self._changed:
            if not (self._over or self._closing):
                self._exit = self._exit or f"the coordinator is gone: {why}"
                self._interrupt(self._exit)
            self._changed.notify_all()

    def _tell(self, message: messages.FromMember) -> None:
        # The thread notices it, too, and what must be known is told to the next coordinator.
        with contextlib.suppress(OSError):
            self._link.tell(message)
