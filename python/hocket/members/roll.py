"""The members of an elastic job that the coordinator is connected with, which of them are silent, and what they are called."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from hocket.members.sight import Sight


class Roll:
    """By member, a number that is given once, and by client, that of a connection.

    Attributes:
        silent: connected members that cannot be heard.
        ended: members whose processes have ended, says the launcher. A connection that was cut does not end.
        hosts: of those that have joined, until they have met the others.
    """

    def __init__(self, silence_max_s: float) -> None:
        """Nobody is there."""
        self._silence_max_s = silence_max_s
        self._member_of: dict[int, int] = {}
        self._client_of: dict[int, int] = {}
        self._sights: dict[int, Sight] = {}
        self._names: dict[int, str] = {}
        self.silent: set[int] = set()
        self.ended: set[int] = set()
        self.hosts: dict[int, str] = {}

    def __contains__(self, member: int) -> bool:
        """Whether it is connected."""
        return member in self._client_of

    def __iter__(self) -> Iterator[int]:
        """Those that are connected."""
        return iter(tuple(self._client_of))

    def __len__(self) -> int:
        """How many are connected."""
        return len(self._client_of)

    @property
    def known(self) -> Collection[int]:
        """All that have been connected."""
        return self._names.keys()

    def enter(self, client: int, member: int, name: str) -> None:
        """It is connected. A name for people; the first one stays."""
        self._member_of[client], self._client_of[member] = member, client
        self._sights[member] = Sight(self._silence_max_s)
        self._names.setdefault(member, name)

    def leave(self, client: int) -> int | None:
        """The connection has ended: whose it was."""
        member = self._member_of.pop(client, None)
        if member is not None:
            del self._client_of[member], self._sights[member]
            self.silent.discard(member)
        return member

    def missing(self, members: Iterable[int]) -> list[int]:
        """Those of them that are not connected, or cannot be heard."""
        gone = self.silent | self.ended
        return [each for each in members if each not in self or each in gone]

    def member_of(self, client: int) -> int | None:
        """Whose connection that is."""
        return self._member_of.get(client)

    def client_of(self, member: int) -> int:
        """The connection of one that is connected."""
        return self._client_of[member]

    def heard(self, member: int) -> bool:
        """It has said something. Whether it was silent before."""
        self.silent.discard(member)
        return self._sights[member].heard()

    def look(self) -> Iterator[tuple[int, str]]:
        """At all that are connected: who is to be asked for a sign (`ask`), and who has become silent (`lost`)."""
        for member, sight in tuple(self._sights.items()):
            found = sight.look()
            if found == "lost":
                self.silent.add(member)
            if found is not None:
                yield member, found

    def name(self, member: int) -> str:
        """For people. Those that have not come back since a coordinator died have told none."""
        return self._names.get(member, f"rank {member}")

    def names(self, members: Iterable[int]) -> str:
        """Of several."""
        return ", ".join(self.name(each) for each in members)
