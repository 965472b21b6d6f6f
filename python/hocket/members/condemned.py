"""Members that the others of an elastic job go on without, and whose processes the launcher should kill."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from hocket.members.change_log import ChangeLog
from hocket.members.roll import Roll


class Condemned:
    """Queue of such members, filled by the coordinator's thread and emptied by the launcher's."""

    def __init__(self, roll: Roll, changes: ChangeLog) -> None:
        self._roll, self._changes = roll, changes
        self._waiting: deque[tuple[int, bool]] = deque()

    def add(self, member: int, why: str | None = None) -> None:
        """Add a member that the others go on without. `why`: the reason, if it has not been reported yet."""
        runs = member in self._roll
        if runs and why is not None:
            self._changes.left_behind(self._roll.name(member), why)
        self._waiting.append((member, runs))

    def take(self) -> Iterator[tuple[int, bool]]:
        """Members added since the last call, each with True if it was connected: it hangs, is stopped or late, but has not died."""
        while self._waiting:
            yield self._waiting.popleft()
