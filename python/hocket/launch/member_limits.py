"""How many members an elastic job may have, and how long its coordinator waits for them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hocket import _native


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Alike for all machines of a job.

    Attributes:
        members_min: the job goes on while it has so many.
        members_max: others may join while it has fewer.
        heartbeat_s: a member that is silent for so long, and that others cannot hear either, is left behind; so is one that is
            asked for a report and gives none for so long.
        join_patience_s: a newcomer whose epoch has not begun after that is left behind.
    """

    members_min: int
    members_max: int
    heartbeat_s: float
    join_patience_s: float

    def machine(self, members: int, history: bytes = b"") -> _native.Coordinator:
        """One that so many members begin, or that goes on from a journal's records."""
        return _native.Coordinator(
            history=history,
            founders=members,
            members_min=self.members_min,
            members_max=self.members_max,
            heartbeat_s=self.heartbeat_s,
            join_patience_s=self.join_patience_s,
            now_s=time.monotonic(),
        )
