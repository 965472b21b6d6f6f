"""This process as a member of an elastic job, for its script: where it waits for others, and for the coordinator's decisions.

An epoch begins where the script can follow: in `next_epoch`, which the session calls. What happens meanwhile is for `Contact`.

Machine and engine are of one generation of members (`coordination`); the connection to the coordinator stays. A member is a number
that its process keeps; the engine and the session use ranks of the generation's job.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

from hocket import _native
from hocket.errors import EpochError, PeerError, RendezvousError
from hocket.job.rendezvous import Job
from hocket.members import member_messages as messages
from hocket.members.arrival import Arrival
from hocket.members.contact import Contact
from hocket.members.meetings import WAKE_S
from hocket.members.participation import Epoch
from hocket.members.patience import Patience
from hocket.settings import Settings

log = logging.getLogger("hocket.membership")


def not_all_came(me: str, newcomers: Mapping[int, str], timeout_s: float) -> PeerError:
    """Error of `me`, which has waited `timeout_s` to meet these `newcomers`: hosts by number."""
    named = " and ".join(f"rank {each} on {host}" for each, host in newcomers.items())
    return PeerError(
        f"{me}: not all ranks came to meet {named} within {timeout_s:g} s\nhint: see what the others printed",
        why="timeout",
    )


def not_founded(world: int, timeout_s: float, why: str | None) -> RendezvousError:
    """Error of a job that does not begin because of `why`; None: not all ranks came within `timeout_s`."""
    missing = f"not all {world} ranks came to the coordinator within {timeout_s:g} s"
    return RendezvousError(f"{why or missing}\nhint: see what the others printed")


def undecided(me: str, timeout_s: float) -> PeerError:
    """Error of `me`, which has waited `timeout_s` for the coordinator."""
    return PeerError(
        f"{me}: the coordinator has not decided within {timeout_s:g} s how the job goes on\n"
        "hint: see what `hocket run` and the other ranks printed",
        why="timeout",
    )


class Membership:
    """Member of an elastic job, from when it comes to the coordinator to `close`.

    Attributes:
        waits: True while the script waits for others elsewhere than here.
        joining, progress, handover: what this member says of itself besides.
        preparing: what it prepares to meet newcomers.
    """

    def __init__(self, settings: Settings, secret: bytes, me: str, arrival: Arrival | None = None) -> None:
        """Connect to the coordinator, or go on from an `arrival`. `me`: process, for people. RendezvousError: there is none."""
        self.waits = False
        self._patience = Patience(settings)
        self._contact = contact = Contact(settings, secret, me, arrival, lambda: self.waits)
        self._changed, self._meetings, self._end = contact.changed, contact.meetings, contact.end
        self.joining, self.progress, self.handover = contact.joining, contact.progress, contact.handover
        self.preparing = contact.preparing

    @property
    def number(self) -> int:
        """Number of this member; negative before the coordinator has given one."""
        return self._contact.number

    @property
    def committed(self) -> int:
        """Number of steps that stand."""
        return self._contact.part.committed

    @property
    def finished(self) -> Mapping[int, int]:
        """Numbers of steps of members whose scripts have ended, by rank."""
        return self._contact.part.finished

    def begin(self, job: Job, engine: _native.Engine, *, generation: int = 0, steps: int = 0) -> None:
        """Wait until all of a generation are ready for their first step, which is number `steps`. Every rank must call it.

        If a member is lost before that, the others meet once more; afterwards, they go on in the next epoch.
        RendezvousError: ranks are missing, or those that are here are to meet once more.
        """
        timeout_s, contact = self._patience.founding_s, self._contact
        with self._changed:
            self._meetings.must_be_newest(generation, contact.me)
            contact.number, contact.me = job.members[job.rank], f"rank {job.rank} on {job.host}"
            self.progress.begin(generation, steps)
            contact.take_part(job.host, job.hosts.index(job.host), engine, job.members, steps)
            part = contact.part
            contact.tell(messages.Comes(member=contact.number, who=contact.who, generation=generation))
            part.handle(_native.Participant.linked)
            found = self._changed.wait_for(
                lambda: part.pending or self._end.why or self._meetings.called_after(generation), timeout_s
            )
            self._meetings.must_be_newest(generation, contact.me)
            if not found or self._end.why:
                contact.tell(messages.CannotMeet(generation=generation, missing=()))
                raise not_founded(job.world, timeout_s, self._end.why)
            # A member may have been lost since all have come: then another epoch follows the first.
            part.pending.popleft()
            contact.departure.ask_again()

    def next_meeting(self, after: int, when: str) -> messages.Regroup:
        """Wait for a meeting later than generation `after`; return the newest.

        RendezvousError: the coordinator will call none, or calls none in time. `when`: text on when it would.
        """
        timeout_s = self._patience.again_s
        with self._changed:
            return self._meetings.later(
                after, timeout_s, who=self._contact.me, when=when, why_none=self._end.text
            )

    def could_not_meet(self, generation: int, ranks: Sequence[int]) -> None:
        """Complain of these ranks of a meeting, so that the others are called to another one without the rank that most miss."""
        with self._changed:
            complaint = self._meetings.complaint(generation, ranks)
            if complaint is not None:
                self._contact.tell(complaint)

    @property
    def newcomers(self) -> Sequence[int]:
        """Members of the epoch in force that are not in this generation: all wait for them after the step."""
        with self._changed:
            part = self._contact.part
            return [each for each in part.members if each not in part.ranks]

    def at_edge(self, timeout_s: float, meanwhile: Callable[[], None]) -> messages.Regroup | None:
        """Wait, with the last step applied, until all are so far and the next generation meets. None: the members change before
        that.

        `meanwhile` may raise an error that makes waiting useless. PeerError: the job ends, or not all have come in time.
        """
        timeout_s = self._patience.edge_s(timeout_s)
        deadline_s = time.monotonic() + timeout_s
        said, contact, part = None, self._contact, self._contact.part
        with self._changed:
            while True:
                contact.note_losses()
                if self._meetings.newest is not None and part.stopped:
                    return self._meetings.newest
                if (why := self._end.text()) is not None:
                    raise PeerError(f"{contact.me}: {why}")
                if part.pending or not self.newcomers:
                    return None
                meanwhile()
                if time.monotonic() > deadline_s:
                    hosts = self.joining.hosts_of(self.newcomers)
                    raise not_all_came(contact.me, hosts, timeout_s)
                part.come()
                epoch = None if part.stopped else part.machine.in_force
                if epoch is not None and epoch != said:
                    said = epoch
                    contact.tell(messages.AtEdge(epoch=epoch))
                self._changed.wait(WAKE_S)

    @property
    def in_force(self) -> int:
        """Epoch in which this member trains. EpochError: the generation is over."""
        with self._changed:
            return self._contact.part.machine.in_force or 0

    @property
    def vote(self) -> int:
        """Newest epoch that this member is ready for."""
        with self._changed:
            return self._contact.part.machine.vote

    def leave(self) -> None:
        """Ask the coordinator to go on without this member after a step, in any thread or signal handler."""
        self._contact.departure.ask()

    def prepared(self, step: int, vote: int) -> bool:
        """Report that all sums of a step, and the smallest vote, are here. Return whether the step goes on to the barrier; if not,
        the members change. EpochError: the generation is over."""
        with self._changed:
            return self._contact.part.prepared(step, vote)

    def done(self, step: int) -> bool:
        """Report that the step's barrier is complete here. Return whether the step stands; if not, the coordinator decides.
        EpochError: the generation is over."""
        with self._changed:
            return self._contact.part.done(step)

    def without_leavers(self) -> tuple[int, ...] | None:
        """Return, once, the members without those that leave after the step which has just come to stand; None if none leave."""
        with self._changed:
            members = self._contact.part.leavers.take()
            if members is None:
                return None
            self.progress.stop()
            return self._contact.part.in_ranks(members)

    def wait_for_release(self, timeout_s: float) -> None:
        """Wait until all others have begun an epoch without this member: they may need it until then."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._end.why or self._end.over, timeout_s):
                log.warning("%s: leaves unreleased after %g s", self._contact.me, timeout_s)

    def next_epoch(self, timeout_s: float) -> Epoch | None:
        """Begin the epoch after the one in force on this rank's engine; it has no programs yet. None: this member has left with the
        step that it has prepared, which stands.

        PeerError: the others go on without this rank, the job ends, or nothing is decided in time.
        """
        timeout_s = self._patience.decision_s(timeout_s)
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            contact, part = self._contact, self._contact.part
            contact.note_losses()
            while not self._end.released:
                part.come()
                if self._end.why is not None:
                    raise PeerError(f"{contact.me}: {self._end.why}")
                if (epoch := part.due()) is not None:
                    try:
                        part.resume(epoch)
                    except EpochError:
                        contact.note_losses()
                        continue
                    return epoch
                if time.monotonic() > deadline_s:
                    raise undecided(contact.me, timeout_s)
                self._changed.wait(WAKE_S)
            return None

    def resumed(self, epoch: int | None = None, *, again: bool) -> None:
        """Report that training goes on in an epoch, or in the first one of a generation. `again`: a step was reduced anew."""
        with self._changed:
            epoch = self.in_force if epoch is None else epoch
            self.progress.resumed(epoch, again=again, steps=self.committed)

    def finish(self, timeout_s: float) -> None:
        """Report that the script has ended in order, and wait until all others' have, since they may still need to ask this one.

        PeerError: the others have gone on without this rank, and may have done its last step again, or the job has ended.
        """
        deadline_s = time.monotonic() + timeout_s
        contact, end = self._contact, self._end
        with self._changed:
            if contact.closing or end.released or contact.part.idle:
                return
            self.progress.report(ends=True)
            contact.tell(messages.Finished(steps=self.committed))
            contact.part.handle(_native.Participant.ended)
            while not end.over:
                if end.shut_out:
                    raise PeerError(f"{contact.me}: {end.why}", why="left")
                if end.why:
                    return
                if time.monotonic() > deadline_s:
                    log.warning("%s: not all ranks have finished %g s after this one", contact.me, timeout_s)
                    return
                if contact.part.pending:
                    self.next_epoch(timeout_s)
                else:
                    self._changed.wait(WAKE_S)

    def give_up(self, rank: int | None = None) -> None:
        """Report that the script waits in vain for that rank, or (None) longer than it may. EpochError: the generation is over."""
        with self._changed:
            self._contact.part.give_up(rank)

    def close(self) -> None:
        """Take no further part; idempotent. The engine closes afterwards."""
        self._contact.close()
