"""Preparation of a meeting beside training, as an elastic job's coordinator sees it.

Newcomers that have the state, and all members, prepare what they will need, while the members train on. Only when all have answered
does the machine hear of these newcomers. If one of them is lost before that, or cannot prepare, they meet with nothing prepared.
"""

from __future__ import annotations

from collections.abc import Sequence

from hocket.members.member_messages import Prepared, Prepares
from hocket.members.outbox import Outbox
from hocket.members.roll import Roll
from hocket.members.stores import Stores

SILENCES = 3
"""Longest preparation, in multiples of the longest silence."""


class Preparation:
    """One preparation at a time, of the meeting that is next."""

    def __init__(self, stores: Stores, outbox: Outbox, roll: Roll, silence_max_s: float) -> None:
        """Prepare nothing yet. `stores`: where members meet."""
        self._stores, self._outbox, self._roll = stores, outbox, roll
        self._longest_ns = round(SILENCES * silence_max_s * 1e9)
        self._store: str | None = None
        self._members: tuple[int, ...] = ()
        self._newcomers: tuple[int, ...] = ()
        """Those of whom the machine is to hear when all have answered."""
        self._awaited: set[int] = set()
        self._until_ns = 0

    @property
    def under_way(self) -> bool:
        """True until all have answered."""
        return bool(self._newcomers)

    def begin(self, members: Sequence[int], newcomers: Sequence[int], now_ns: int) -> None:
        """Let members and newcomers prepare to meet."""
        self.forget()
        self._members, self._newcomers = (*members, *newcomers), tuple(newcomers)
        self._awaited, self._until_ns = set(self._members), now_ns + self._longest_ns
        self._store = self._stores.beside()
        for each in self._members:
            self._outbox.tell(each, Prepares(members=self._members, store=self._store))

    def answered(self, member: int, message: Prepared) -> Sequence[int]:
        """Note what has come of a member's preparation. Return the newcomers of whom the machine is to hear."""
        if message.store != self._store:
            return ()
        if not message.done:
            return self.forget()
        self._awaited.discard(member)
        return () if self._awaited else self._due()

    def lost(self, member: int) -> Sequence[int]:
        """Note that a member or newcomer cannot be reached. Return the newcomers of whom the machine is to hear."""
        return self.forget() if member in self._members else ()

    def expired(self, now_ns: int) -> Sequence[int]:
        """Return the newcomers of whom the machine is to hear, if the others have waited for too long."""
        return self.forget() if self.under_way and now_ns > self._until_ns else ()

    def take(self, members: Sequence[int]) -> str | None:
        """Return the store at which these members have prepared to meet; None: they have not. Another meeting is next."""
        store = self._store
        if store is None or self._awaited or tuple(members) != self._members:
            self.forget()
            return None
        self._stores.go_on_beside()
        self._store, self._members = None, ()
        return store

    def forget(self) -> Sequence[int]:
        """Give up what is prepared; return the newcomers of whom the machine is to hear."""
        if self._store is not None:
            for each in self._members:
                if each in self._roll:
                    self._outbox.tell(each, Prepares())
            self._stores.give_up_beside()
        self._store, self._members, self._awaited = None, (), set()
        return self._due()

    def _due(self) -> Sequence[int]:
        due, self._newcomers = self._newcomers, ()
        return due
