"""The meetings to which the coordinator of an elastic job calls one of its members. Whoever uses this holds the member's lock."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from hocket.errors import RendezvousError
from hocket.members.member_messages import CannotMeet, Regroup

WAKE_S = 0.1
"""Longest wait in which Ctrl-C is not noticed."""
SAY_S = 10.0
"""How often people hear that this member still waits."""

log = logging.getLogger("hocket.membership")


class Meetings:
    """`newest` is the one that was called last."""

    def __init__(self, changed: threading.Condition) -> None:
        """There was none. `changed`: the member's lock, notified when it has heard something."""
        self._changed = changed
        self.newest: Regroup | None = None

    def called_after(self, generation: int) -> bool:
        """Whether there was one later than that generation's."""
        return self.newest is not None and self.newest.generation > generation

    def must_be_newest(self, generation: int, who: str) -> None:
        """RendezvousError: there was one later than that generation's."""
        if self.called_after(generation):
            raise RendezvousError(f"{who}: the members of the job have changed again")

    def later(
        self, after: int, timeout_s: float, *, who: str, when: str, why_none: Callable[[], str | None]
    ) -> Regroup:
        """The newest one later than generation `after`, once it is called.

        RendezvousError: there will be none, and `why_none` says why; or none is called in time, which says `when` it would be.
        """
        deadline_s = time.monotonic() + timeout_s
        said_s = time.monotonic()
        while self.newest is None or self.newest.generation <= after:
            why = why_none()
            if why is not None:
                raise RendezvousError(f"{who}: {why}")
            now_s = time.monotonic()
            if now_s > deadline_s:
                raise RendezvousError(
                    f"{who}: the job's ranks have not met this one within {timeout_s:g} s: {when}\n"
                    "hint: see what `hocket run` and the ranks print"
                )
            if now_s > said_s + SAY_S:
                said_s = now_s
                log.warning("%s waits for the others: %s", who, when)
            self._changed.wait(WAKE_S)
        return self.newest

    def complaint(self, generation: int, ranks: Sequence[int]) -> CannotMeet | None:
        """That these ranks have not come to it; None: another one was called since."""
        if self.newest is None or self.newest.generation != generation:
            return None
        return CannotMeet(generation=generation, missing=tuple(self.newest.members[rank] for rank in ranks))
