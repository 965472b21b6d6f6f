"""Which members have left in order since a generation met, as one of the others knows it."""

from __future__ import annotations

from collections.abc import Collection, Sequence


class Leavers:
    """`all` of them."""

    def __init__(self) -> None:
        """Nobody has."""
        self.all: tuple[int, ...] = ()
        self._others: tuple[int, ...] | None = None

    def decided(self, before: Sequence[int], members: Sequence[int], evicted: Collection[int]) -> bool:
        """An epoch of these `members` follows that of those `before`. Whether others have left with it."""
        leavers = tuple(each for each in before if each not in members and each not in evicted)
        if leavers:
            # Others may have been lost since: then this is the second epoch without the leavers, and some have been in the first.
            self.all += leavers
            self._others = tuple(each for each in before if each not in leavers)
        return bool(leavers)

    def leave(self, members: Sequence[int], me: int) -> None:
        """This member has left, and the others may have gone on before it has left the barrier of its last step."""
        self._others = tuple(each for each in members if each != me)

    def take(self) -> tuple[int, ...] | None:
        """The members without those that have left since the last call; None: nobody has."""
        others, self._others = self._others, None
        return others
