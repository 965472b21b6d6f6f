"""Preparation of a meeting beside training, as an elastic job's coordinator sees it.

Newcomers that have the state, and all members, prepare what they will need, while the members train on. Only when all have answered
does the machine hear of these newcomers. If one of them is lost before that, or cannot prepare, they meet with nothing prepared.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from hocket.members.gathering import Gathering
from hocket.members.member_messages import Prepared, Prepares
from hocket.members.outbox import Outbox
from hocket.members.roster import Roster
from hocket.members.stores import Stores
from hocket.members.waiting import Waiting

Notes = Sequence[tuple[int, bytes]]
"""Notes of newcomers, by their numbers, for the machine."""

SILENCES = 3
"""Longest preparation, in multiples of the longest silence."""


class Preparation:
    """One preparation at a time, of the meeting that is next."""

    def __init__(
        self, stores: Stores, outbox: Outbox, roster: Roster, gathering: Gathering, waiting: Waiting
    ) -> None:
        """Prepare nothing yet. `stores`: where members meet; `waiting`: who waits to become one."""
        self._stores, self._outbox, self._roster, self._roll = stores, outbox, roster, roster.roll
        self._gathering, self._waiting = gathering, waiting
        self._longest_ns = round(SILENCES * roster.limits.heartbeat_s * 1e9)
        self._store: str | None = None
        self._members: tuple[int, ...] = ()
        self._newcomers: tuple[int, ...] = ()
        """Processes of which the machine is to hear when all have answered."""
        self._awaited: set[int] = set()
        self._until_ns = 0

    def look(self, *, postponed: bool) -> Notes:
        """Let newcomers that are ready prepare, one meeting after the other. Return the notes of those that the job has no
        room for, or no time. `postponed`: too few members are left to meet."""
        newcomers = [each for each in self._waiting.unprepared() if each not in self._roll.silent]
        gathering, roster = self._gathering, self._roster
        if not newcomers or gathering.under_way or self._newcomers:
            return ()
        members, room = roster.members, roster.limits.members_max - len(roster.members)
        settled = roster.goes_on and not roster.missing and all(each in gathering.members for each in members)
        prepared = newcomers[: max(0, room)] if settled and not postponed else []
        if prepared:
            self._begin(members, prepared)
        return self._let_in([each for each in newcomers if each not in prepared])

    def _begin(self, members: Sequence[int], newcomers: Sequence[int]) -> None:
        self.forget()
        self._members, self._newcomers = (*members, *newcomers), tuple(newcomers)
        self._awaited, self._until_ns = set(self._members), time.monotonic_ns() + self._longest_ns
        self._store = self._stores.beside()
        # A meeting before that forgets what is prepared.
        order = Prepares(members=self._members, store=self._store, generation=self._gathering.number + 1)
        for each in self._members:
            self._outbox.tell(each, order)

    def answered(self, member: int, message: Prepared) -> Notes:
        """Note what has come of a member's preparation. Return the notes that the machine is to hear."""
        if message.store != self._store:
            return ()
        if not message.done:
            return self.forget()
        self._awaited.discard(member)
        return () if self._awaited else self._due()

    def lost(self, member: int) -> Notes:
        """Note that a member or newcomer cannot be reached. Return the notes that the machine is to hear."""
        return self.forget() if member in self._members else ()

    def expired(self, now_ns: int) -> Notes:
        """Return the notes that the machine is to hear, if the others have waited for too long."""
        return self.forget() if self._newcomers and now_ns > self._until_ns else ()

    def take(self, members: Sequence[int]) -> str | None:
        """Return the store at which these members have prepared to meet; None: they have not. Another meeting is next."""
        store = self._store
        if store is None or self._awaited or tuple(members) != self._members:
            self.forget()
            return None
        self._stores.go_on_beside()
        self._store, self._members = None, ()
        return store

    def forget(self) -> Notes:
        """Give up what is prepared; return the notes that the machine is to hear."""
        if self._store is not None:
            for each in self._members:
                if each in self._roll:
                    self._outbox.tell(each, Prepares())
            self._stores.give_up_beside()
        self._store, self._members, self._awaited = None, (), set()
        return self._due()

    def _due(self) -> Notes:
        due, self._newcomers = self._newcomers, ()
        return self._let_in(due)

    def _let_in(self, newcomers: Sequence[int]) -> Notes:
        # The machine would wait for those that cannot be heard themselves.
        return self._waiting.let_in([each for each in newcomers if each not in self._roll.silent])
