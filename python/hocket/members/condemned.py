"""Members without whom the others of an elastic job go on, and whose processes the launcher should kill."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from hocket.members.change_log import ChangeLog
from hocket.members.roll import Roll


class Condemned:
    """The coordinator adds, and the launcher takes, in threads of their own."""

    def __init__(self, roll: Roll, changes: ChangeLog) -> None:
        """Nobody is."""
        self._roll, self._changes = roll, changes
        self._waiting: deque[tuple[int, bool]] = deque()

    def add(self, member: int, why: str | None = None) -> None:
        """The others go on without it. `why`: if people do not know yet."""
        runs = member in self._roll
        if runs and why is not None:
            self._changes.left_behind(self._roll.name(member), why)
        self._waiting.append((member, runs))

    def take(self) -> Iterator[tuple[int, bool]]:
        """Those since the last call, and whether each was connected: it hangs, stands still or is late, and has not died."""
        while self._waiting:
            yield self._waiting.popleft()
