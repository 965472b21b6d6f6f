"""Members that have left in order since a generation met, as another member knows them."""

from __future__ import annotations

from collections.abc import Collection, Sequence


class Leavers:
    """Members that have left: `all` of them."""

    def __init__(self) -> None:
        self.all: tuple[int, ...] = ()
        self._others: tuple[int, ...] | None = None

    def decided(self, before: Sequence[int], members: Sequence[int], evicted: Collection[int]) -> bool:
        """Record an epoch of `members` after one of those `before`. Return whether some have left with it."""
        leavers = tuple(each for each in before if each not in members and each not in evicted)
        if leavers:
            # Others may have been lost since: then this is the second epoch without the leavers, and some have been in the first.
            self.all += leavers
            self._others = tuple(each for each in before if each not in leavers)
        return bool(leavers)

    def leave(self, members: Sequence[int], me: int) -> None:
        """Record that this member has left. The others may have gone on before it has left the barrier of its last step."""
        self._others = tuple(each for each in members if each != me)

    def take(self) -> tuple[int, ...] | None:
        """Return the members without those that have left since the last call, or None if none has."""
        others, self._others = self._others, None
        return others
