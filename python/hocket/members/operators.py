"""Operators that wait until a member of an elastic job has left: the coordinator's side of `hocket leave`."""

from __future__ import annotations

from collections.abc import Collection

from hocket.members.gathering import Gathering
from hocket.members.member_messages import Answer, MustLeave
from hocket.members.outbox import Outbox
from hocket.members.roster import Roster


class Operators:
    """Operators whose members are still there. A client is a connection's number."""

    def __init__(self, gathering: Gathering, roster: Roster, outbox: Outbox) -> None:
        self._gathering, self._roster, self._outbox = gathering, roster, outbox
        self._wants: dict[int, int] = {}

    def ask(self, client: int, message: MustLeave) -> None:
        """Pass on the request of an operator, or answer why the member stays."""
        why = self._why_not(message.member)
        if why is None:
            self._wants[client] = message.member
            self._outbox.tell(message.member, message)
        else:
            self._outbox.refuse(client, why)

    def _why_not(self, member: int) -> str | None:
        if (why := self._roster.closed) is not None:
            return why
        if self._gathering.under_way:
            return "the job's ranks are just meeting those that have joined; ask again"
        here = [each for each in self._roster.members if each in self._roster.roll]
        if member not in here:
            return f"rank {member} does not train; ranks {', '.join(map(str, here))} do"
        least, leaving = self._roster.limits.members_min, set(self._wants.values()) - {member}
        if len(here) - len(leaving) <= least:
            return f"the job must have {least} ranks, and would have fewer without rank {member}"
        return None

    def drop(self, client: int) -> None:
        """Forget a client that waits no longer."""
        self._wants.pop(client, None)

    def answer(self, evicted: Collection[int] = ()) -> None:
        """Answer operators whose members have gone, or whose job has ended. `evicted`: members that were lost just now."""
        members, of = self._roster.members, len(self._gathering.members)
        ended = self._roster.over or self._roster.ended is not None
        for client, member in tuple(self._wants.items()):
            who = self._roster.roll.name(member)
            if member in members and not ended:
                continue
            del self._wants[client]
            if member in members:
                self._outbox.refuse(client, f"the job ended before {who} could leave")
            elif member in evicted:
                self._outbox.refuse(client, f"{who} was lost before it could leave in order")
            else:
                text = f"{who} has left, and {len(members)} of {of} ranks go on"
                self._outbox.send(client, Answer(done=True, text=text))
