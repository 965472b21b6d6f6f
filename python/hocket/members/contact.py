"""Contact of an elastic job's member with the coordinator: who it is, what it is told, and its part in the generation.

A thread hears the coordinator, also while the script computes, so that the member stops and reports at once. Code that changes what
it knows holds one lock.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from hocket import _native
from hocket.errors import Error
from hocket.members import member_messages as messages
from hocket.members.arrival import Arrival
from hocket.members.departure import Departure
from hocket.members.handover import Handover
from hocket.members.joining import Joining
from hocket.members.link import Link
from hocket.members.meetings import Meetings
from hocket.members.participation import MemberEnd, Participation
from hocket.members.patience import Patience
from hocket.members.preparing import Preparing
from hocket.members.progress import Progress
from hocket.settings import Settings

LOOK_S = 0.02
"""Time between the thread's checks whether the engine has lost a peer while nothing waits for it."""
JOINERS_HOST = 1 << 24
"""First host number for joiners, beyond the numbers of hosts whose members share memory."""


class Contact:
    """Contact from when a process comes to the coordinator to `close`.

    Attributes:
        changed: the member's lock, notified when the member has heard something.
        me: this process, for people.
        number: its number; negative before the coordinator has given one.
        part: its part in the generation.
        preparing: what it prepares to meet newcomers.
        end: how its part in the job ends.
        closing: `close` was called.
    """

    def __init__(
        self, settings: Settings, secret: bytes, me: str, arrival: Arrival | None, waits: Callable[[], bool]
    ) -> None:
        """Connect, or go on from an `arrival`. `waits`: whether the script waits for others. RendezvousError: nobody is there."""
        self.changed = threading.Condition(threading.RLock())
        self.me, self._host, self.number = me, "", -1
        self._settings, self._waits = settings, waits
        self.end, self.closing = MemberEnd(), False
        self.departure, self.meetings = Departure(), Meetings(self.changed)
        patience_s, why_none = Patience(settings).joining_s, self.end.text
        self.joining = Joining(patience_s, self.changed, self.tell, self.meetings, why_none)
        self.progress = Progress(self.changed, self.tell, lambda: self.part.members[:1] == (self.number,))
        self.preparing = Preparing(self.changed, self.tell)
        self.handover = Handover(self.changed, self.tell, lambda: self.part.members, why_none)
        self.part = self._part()
        self._link = Link(settings, secret, arrival)
        self._thread = threading.Thread(target=self._listen, name="hocket-member", daemon=True)
        self._thread.start()

    def tell(self, message: messages.FromMember) -> None:
        # The thread notices a lost connection, too; lasting messages are repeated to the next coordinator.
        with contextlib.suppress(OSError):
            self._link.tell(message)

    def _part(self, **given: Any) -> Participation:
        return Participation(self.number, self.changed, self.tell, self.progress, self.end, **given)

    @property
    def who(self) -> str:
        return f"rank {self.number} on {self._host} (process {os.getpid()})"

    def take_part(
        self,
        host: str,
        host_number: int,
        engine: _native.Engine | None = None,
        ranks: Sequence[int] = (),
        steps: int = 0,
    ) -> None:
        """Begin a part in a generation of these `ranks`; without an engine, wait to join. `host_number`: equal for members that
        share memory."""
        self._host = host
        settings = self._settings
        machine = _native.Participant(
            member=self.number,
            host=host_number,
            founds=engine is not None,
            coordinator_patience_s=settings.coordinator_timeout_s or settings.silence_max_s(elastic=True),
            now_s=time.monotonic(),
        )
        self.part = self._part(machine=machine, engine=engine, ranks=ranks, steps=steps)

    def look(self) -> None:
        """Tell the machine of local events: losses, waits, the time, and a wish to leave."""
        with self.changed:
            self.note_losses()
            if self._waits():
                self.part.come()
            self.part.handle(_native.Participant.tick)
            if not self.part.stopped and self.departure.due():
                self.part.handle(_native.Participant.leave_asked)

    def note_losses(self) -> None:
        """Tell the machine of lost peers, while that matters."""
        if not (self.end.over or self.closing or self.end.why):
            self.part.note_losses()

    def close(self) -> None:
        """Hear nothing more; idempotent."""
        self.closing = True
        if threading.current_thread() is not self._thread:
            self._thread.join()
        with self.changed:
            self.preparing.drop()
        self._link.close()

    def _listen(self) -> None:
        while not self.closing:
            try:
                data = self._link.arrived(LOOK_S)
                with self.changed:
                    for message in self._link.read(data):
                        self._hear(message)
                    self._look_at_the_coordinator()
                    self.look()
            except OSError as error:
                if not self._comes_back(str(error)):
                    return
            except Exception as error:  # of any kind, since no other thread hears the coordinator
                self._give_up(str(error) if isinstance(error, Error) else f"{type(error).__name__}: {error}")
                return

    def _look_at_the_coordinator(self) -> None:
        """Tell the machine whether the coordinator can be heard."""
        seen = self._link.look()
        if seen is not None:
            self.part.handle(_native.Participant.unlinked)
        if seen == "back":
            self.part.handle(_native.Participant.linked)

    def _comes_back(self, why: str) -> bool:
        """Wait for a successor of a coordinator that is gone. Return whether one has come and resumes from the journal."""
        patience_s = self._settings.coordinator_timeout_s
        with self.changed:
            if self.end.over or self.closing or self.end.why or patience_s is None:
                self._give_up(why)
                return False
            self.part.handle(_native.Participant.unlinked)
        useless = lambda: self.closing or bool(self.end.why)  # noqa: E731
        if not self._link.renew(self.me, why, patience_s, self.look, useless):
            self._give_up(f"{why}; no other one came within {patience_s:g} s")
            return False
        with self.changed, contextlib.suppress(OSError):
            newest = self.meetings.newest
            if self.number >= 0:
                back = messages.Back(
                    member=self.number,
                    who=self.who,
                    host=self._host,
                    generation=newest.generation if newest else 0 if self.part.ranks else None,
                    state=self.joining.state,
                    job=self._link.job,
                )
                self.tell(back)
            self.part.handle(_native.Participant.linked)
            self._link.tell_again()
        return True

    def _hear(self, message: messages.FromCoordinator) -> None:
        match message:
            case messages.Orders(order=order):
                self.meetings.members_change()
                self.part.handle(_native.Participant.order, order)
            case messages.OtherFinished(member=member, steps=steps):
                self.part.finished.update(dict.fromkeys(self.part.in_ranks([member]), steps))
            case messages.Welcome(member=member, host=host) if self.number < 0:
                self._link.forget(messages.Joins)
                self.number, self.me = member, f"rank {member} on {host}"
                # It shares no host with others yet.
                self.take_part(host, JOINERS_HOST + member)
                self.part.handle(_native.Participant.linked)
            case messages.Welcome() as welcome if welcome.member != self.number:
                self.progress.report()
                self.joining.welcome(welcome)
            case messages.Prepares() as order:
                self.preparing.begin(order)
            case messages.Regroup() as meeting:
                self.meetings.newest = meeting
                self.part.stop()
                self.joining.met(meeting.members)
                self._link.forget(messages.Ready, messages.AtEdge, messages.Gives, messages.Lacks)
                self.progress.stop()
            case messages.Gives() as gives:
                self.handover.hear(gives)
            case messages.Answer(text=text):
                self.end.why, self.end.shut_out = text, True
                self.part.interrupt(text)
            case messages.Over():
                self.end.over = True
            case messages.MustLeave():
                self.departure.ask()
            case messages.Ends():
                self.departure.job_ends()
        self.changed.notify_all()

    def _give_up(self, why: str) -> None:
        """End this member's part, since the coordinator is gone."""
        with self.changed:
            if not (self.end.over or self.closing):
                self.end.why = self.end.why or f"the coordinator is gone: {why}"
                self.part.interrupt(self.end.why)
            self.changed.notify_all()
