"""Wait of an elastic job, between two steps, when fewer members are left than it must have."""

from __future__ import annotations

import time

from hocket.members.change_log import ChangeLog
from hocket.members.member_limits import Limits


class Shortage:
    """Wait, between two steps, until enough members are connected; while members train, their machine does the same."""

    def __init__(self, limits: Limits, changes: ChangeLog) -> None:
        self._limits, self._changes = limits, changes
        self._until_ns: int | None = None

    @property
    def lasts(self) -> bool:
        """True while members wait."""
        return self._until_ns is not None

    def end(self) -> None:
        """End the wait: there are enough members."""
        self._until_ns = None

    def go_on(self, left: int, lost: str) -> str | None:
        """Begin or continue to wait: `left` members are too few, without the `lost` ones. Return why the job ends, or None."""
        least, patience_s = self._limits.members_min, self._limits.rejoin_patience_s
        now_ns = time.monotonic_ns()
        if patience_s == 0:
            return f"{left} of at least {least} members are left"
        if self._until_ns is None:
            self._until_ns = now_ns + round(patience_s * 1e9)
            self._changes.waits(left, lost, self._limits)
        elif now_ns > self._until_ns:
            return f"{left} of at least {least} members are left, and nobody came in {patience_s:g} s"
        return None
