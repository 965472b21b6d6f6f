"""Limits on the number of an elastic job's members, and on the time its coordinator waits for them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hocket import _native
from hocket.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits, equal for all machines of a job.

    Attributes:
        members_min: the job goes on while it has so many members.
        members_max: others may join while it has fewer members.
        heartbeat_s: silence after which a member that others cannot hear either is left behind; so is a member that gives no report
            for so long after it was asked for one.
        join_patience_s: time after which a newcomer whose epoch has not begun is left behind.
        rejoin_patience_s: time that a job with too few members waits for others before it ends.
    """

    members_min: int
    members_max: int
    heartbeat_s: float
    join_patience_s: float
    rejoin_patience_s: float

    @classmethod
    def of(cls, settings: Settings, members_min: int, members_max: int) -> Limits:
        """Limits in the settings of the job's ranks."""
        return cls(
            members_min=members_min,
            members_max=members_max,
            heartbeat_s=settings.silence_max_s(elastic=True),
            join_patience_s=settings.timeout_s,
            rejoin_patience_s=settings.rejoin_timeout_s or 0.0,
        )

    def machine(self, members: int, history: bytes = b"") -> _native.Coordinator:
        """Machine of a job that `members` members begin, or that resumes from a journal's records."""
        return _native.Coordinator(
            history=history,
            founders=members,
            members_min=self.members_min,
            members_max=self.members_max,
            heartbeat_s=self.heartbeat_s,
            join_patience_s=self.join_patience_s,
            rejoin_patience_s=self.rejoin_patience_s,
            now_s=time.monotonic(),
        )
