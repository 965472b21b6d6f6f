"""Calls of an elastic job's members to meetings: when members are to meet, and which of them."""

from __future__ import annotations

import time
from collections.abc import Mapping

from hocket import _native
from hocket.job.store.frames import FrameError
from hocket.members.change_log import ChangeLog
from hocket.members.condemned import Condemned
from hocket.members.gathering import Gathering
from hocket.members.member_messages import Comes
from hocket.members.outbox import Outbox
from hocket.members.roster import Roster
from hocket.members.stores import Stores
from hocket.members.waiting import Waiting


class Convening:
    """Meetings between two steps, for which the machine of no generation can decide. What it returns is an action like a machine's:
    `meet` (these `members`) or `end` (the job, `why`); or None.

    Attributes:
        gathering: generation that meets, or has met.
        back_until_ns: time from which members that have not come back to this coordinator count as gone; None: all have.
    """

    def __init__(
        self,
        gathering: Gathering,
        stores: Stores,
        roster: Roster,
        waiting: Waiting,
        outbox: Outbox,
        *,
        condemned: Condemned,
        changes: ChangeLog,
    ) -> None:
        """Convene at `stores` those on the `roster`, and who is `waiting` where they are too few."""
        self.gathering, self._stores, self._roster, self._roll = gathering, stores, roster, roster.roll
        self._waiting, self._outbox, self._condemned, self._changes = waiting, outbox, condemned, changes
        limits = roster.limits
        self._shortage = _native.Shortage(
            members_min=limits.members_min, rejoin_patience_s=limits.rejoin_patience_s
        )
        self.back_until_ns: int | None = None

    @property
    def postponed(self) -> bool:
        """True while too few members are left to meet."""
        return self._shortage.lasts

    def come(self, client: int, message: Comes) -> None:
        """Record that a member has met the others. FrameError: it is not expected."""
        member, gathering = message.member, self.gathering
        if message.generation != gathering.number or self.postponed:
            return  # the others have begun to meet once more since, or will when there are enough
        expected = member in gathering.members and member not in gathering.present
        if gathering.number == 0:
            expected &= self._roll.member_of(client) is None and member not in self._roll.known
        else:
            expected &= self._roll.member_of(client) == member
        if not expected:
            raise FrameError(f"{message.who} comes as member {member}, which it is not")
        gathering.present.add(member)
        self._roll.enter(client, member, message.who)

    def concerns(self, member: int) -> bool:
        """Return whether the loss of that member is no matter of the machine, since a meeting with it is under way."""
        return self.gathering.number > 0 and self.gathering.under_way and member in self.gathering.members

    def at_the_edge(self) -> _native.MemberAction | None:
        """Call members that wait between two steps, once all do."""
        members = self.gathering.due(self._roll) if self._roster.ended is None else None
        if members is None or (self.back_until_ns is not None and self._roll.missing(members)):
            return None
        self._roster.members = members
        return self.without_missing()

    def without_blamed(self, now_ns: int) -> _native.MemberAction | None:
        """Call members to another meeting if some could not meet, without the member to blame for that."""
        if self._roster.ended is not None:
            return None
        patience_ns = round(self._roster.limits.heartbeat_s / 2 * 1e9)
        blamed = self.gathering.to_blame(now_ns, patience_ns) if self.gathering.under_way else None
        if blamed is None:
            return None
        member, count = blamed
        return self._without({member: f"{count} of the others could not reach it when the job's ranks met"})

    def without_missing(self) -> _native.MemberAction | None:
        """Call the members, without those that were lost on the way or have not come back."""
        self.back_until_ns = None
        why = "it could not be heard when the job's ranks met"
        return self._without(dict.fromkeys(self._roster.missing, why))

    def _without(self, lost: Mapping[int, str]) -> _native.MemberAction | None:
        """Call the members, without those in `lost`, each with the reason."""
        for each, why in lost.items():
            name = self._roll.name(each)
            self._changes.dropped(name, why)
            self._condemned.add(each)
            if each in self._roll:
                number = self.gathering.epochs_before + self._roster.epoch + 1
                self._outbox.refuse(self._roll.client_of(each), f"evicted in epoch {number}: {why}")
            if self.gathering.under_way:
                self._stores.refuse(self.gathering.members.index(each), f"{name} is lost")
        self._roster.drop(lost)
        left, holders = list(self._roster.members), list(self.gathering.holders)
        waiting = [each for each in self._waiting if each in self._roll and each not in self._roll.silent]
        action = self._shortage.follow(left, holders, waiting, list(lost), time.monotonic())
        if action is not None and action.kind == "wait":
            self._changes.waits(len(left), self._roll.names(lost), self._roster.limits)
            return None
        return action
