"""Members of an elastic job that are connected to the coordinator, which of them are silent, and their names."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

from hocket.members.sight import Sight


class Roll:
    """Connections by member, a number that is given once, and by client, the number of a connection.

    Attributes:
        silent: connected members that cannot be heard.
        ended: members whose processes have ended, says the launcher. A connection that was cut does not end.
        tcp_info: what the system tells of a client's connection; None: that is not looked at.
    """

    def __init__(self, silence_max_s: float) -> None:
        self._silence_max_s = silence_max_s
        self._member_of: dict[int, int] = {}
        self._client_of: dict[int, int] = {}
        self._sights: dict[int, Sight] = {}
        self._names: dict[int, str] = {}
        self.silent: set[int] = set()
        self.ended: set[int] = set()
        self.tcp_info: Callable[[int], bytes] | None = None

    def __contains__(self, member: int) -> bool:
        return member in self._client_of

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._client_of))

    def __len__(self) -> int:
        return len(self._client_of)

    @property
    def known(self) -> Collection[int]:
        """Members that have ever been connected."""
        return self._names.keys()

    def enter(self, client: int, member: int, name: str) -> None:
        """Add a connected member. `name`: for people; a member's first name stays."""
        self._member_of[client], self._client_of[member] = member, client
        self._sights[member] = Sight(self._silence_max_s)
        self._names.setdefault(member, name)

    def leave(self, client: int) -> int | None:
        """Remove a connection that has ended. Return its member, or None."""
        member = self._member_of.pop(client, None)
        if member is not None:
            del self._client_of[member], self._sights[member]
            self.silent.discard(member)
        return member

    def missing(self, members: Iterable[int]) -> list[int]:
        """Members among these that are not connected, cannot be heard or have ended."""
        gone = self.silent | self.ended
        return [each for each in members if each not in self or each in gone]

    def member_of(self, client: int) -> int | None:
        """Member on this connection, or None."""
        return self._member_of.get(client)

    def client_of(self, member: int) -> int:
        return self._client_of[member]

    def heard(self, member: int) -> bool:
        """Record a sign of the member. Return whether it was silent before."""
        self.silent.discard(member)
        return self._sights[member].heard()

    def look(self, doubted: Collection[int]) -> Iterator[tuple[int, str]]:
        """Connected members to ask for a sign (`ask`), and those that have become silent (`lost`). `doubted`: others cannot reach
        them."""
        for member, sight in tuple(self._sights.items()):
            looks = self.tcp_info if member in doubted else None
            found = sight.look(None if looks is None else looks(self._client_of[member]))
            if found == "lost":
                self.silent.add(member)
            if found is not None:
                yield member, found

    def name(self, member: int) -> str:
        """Name of a member for people; one that has not come back since a coordinator died has told none."""
        return self._names.get(member, f"rank {member}")

    def names(self, members: Iterable[int]) -> str:
        return ", ".join(self.name(each) for each in members)
