"""Meetings to which the coordinator of an elastic job calls one of its members. All callers hold the member's lock."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from hocket.errors import RendezvousError
from hocket.members.member_messages import CannotMeet, Regroup

WAKE_S = 0.1
"""Longest wait during which Ctrl-C is not noticed."""
SAY_S = 10.0
"""Time between log lines that say this member still waits."""

log = logging.getLogger("hocket.membership")


class Meetings:
    """Meetings called so far; `newest` is the last one."""

    def __init__(self, changed: threading.Condition) -> None:
        """Start without a meeting. `changed`: the member's lock, notified when the member has heard something."""
        self._changed = changed
        self.newest: Regroup | None = None
        self._changed_s = time.monotonic()

    def members_change(self) -> None:
        """Note that the coordinator deals with a loss, a joiner or a leaver: whoever waits for a meeting begins to wait anew."""
        self._changed_s = time.monotonic()

    def called_after(self, generation: int) -> bool:
        """Return whether a meeting later than that generation's was called."""
        return self.newest is not None and self.newest.generation > generation

    def is_called(self, who: str, why_none: Callable[[], str | None]) -> bool:
        """Return whether a meeting was called. RendezvousError: there will be none, for the reason that `why_none` returns."""
        if self.newest is None and (why := why_none()) is not None:
            raise RendezvousError(f"{who}: {why}")
        return self.newest is not None

    def must_be_newest(self, generation: int, who: str) -> None:
        """Raise RendezvousError if a meeting later than that generation's was called."""
        if self.called_after(generation):
            raise RendezvousError(f"{who}: the members of the job have changed again")

    def later(
        self, after: int, timeout_s: float, *, who: str, when: str, why_none: Callable[[], str | None]
    ) -> Regroup:
        """Wait for a meeting later than generation `after`; return the newest.

        RendezvousError: there will be none, for the reason that `why_none` returns; or none is called in time. `when`: text on when
        one would be.
        """
        began_s = said_s = time.monotonic()
        while self.newest is None or self.newest.generation <= after:
            why = why_none()
            if why is not None:
                raise RendezvousError(f"{who}: {why}")
            now_s = time.monotonic()
            if now_s > max(began_s, self._changed_s) + timeout_s:
                raise RendezvousError(
                    f"{who}: the job's ranks have not met this one within {timeout_s:g} s: {when}\n"
                    "hint: see what the launcher, or the coordinator, and the ranks print"
                )
            if now_s > said_s + SAY_S:
                said_s = now_s
                log.warning("%s waits for the others: %s", who, when)
            self._changed.wait(WAKE_S)
        return self.newest

    def complaint(self, generation: int, ranks: Sequence[int]) -> CannotMeet | None:
        """Return the complaint that these ranks have not come; None if another meeting was called since."""
        if self.newest is None or self.newest.generation != generation:
            return None
        return CannotMeet(generation=generation, missing=tuple(self.newest.members[rank] for rank in ranks))
