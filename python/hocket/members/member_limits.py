"""How many members an elastic job may have, and how long its coordinator waits for them."""

from __future__ import annotations

import time
from dataclasses import dataclass

from hocket import _native
from hocket.settings import Settings


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Alike for all machines of a job.

    Attributes:
        members_min: the job goes on while it has so many.
        members_max: others may join while it has fewer.
        heartbeat_s: a member that is silent for so long, and that others cannot hear either, is left behind; so is one that is
            asked for a report and gives none for so long.
        join_patience_s: a newcomer whose epoch has not begun after that is left behind.
        rejoin_patience_s: with fewer members than it must have, the job waits for others for so long, then ends.
    """

    members_min: int
    members_max: int
    heartbeat_s: float
    join_patience_s: float
    rejoin_patience_s: float

    @classmethod
    def of(cls, settings: Settings, members_min: int, members_max: int) -> Limits:
        """As the settings of the job's ranks say."""
        return cls(
            members_min=members_min,
            members_max=members_max,
            heartbeat_s=settings.silence_max_s(elastic=True),
            join_patience_s=settings.timeout_s,
            rejoin_patience_s=settings.rejoin_timeout_s or 0.0,
        )

    def machine(self, members: int, history: bytes = b"") -> _native.Coordinator:
        """One that so many members begin, or that goes on from a journal's records."""
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
