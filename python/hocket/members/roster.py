"""Members of an elastic job, what has become of others, and where the job stands: what its coordinator has decided so far."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from hocket import _native
from hocket.members.member_limits import Limits
from hocket.members.roll import Roll


@dataclass(frozen=True, kw_only=True)
class Ended:
    """End of an elastic job: its reason, and the members that were lost at the end."""

    why: str
    lost: tuple[int, ...]


class Roster:
    """Record that the launcher reads, too.

    Attributes:
        limits: of the job's members.
        roll: who of them is connected.
        members: members that go on; while they meet, those that are to come.
        epoch: number of the machine's last decision.
        shut_out: lost members; some may come back without knowing that they are lost.
        left: members that have left in order.
        finished: steps of members whose scripts have ended.
        founded: the first epoch is decided; before that, all founders are needed.
        over: all members have finished in order.
        ended: end of the job before its scripts end, or None.
    """

    def __init__(self, limits: Limits, roll: Roll) -> None:
        self.limits, self.roll = limits, roll
        self.members: tuple[int, ...] = ()
        self.epoch = 0
        self.shut_out: set[int] = set()
        self.left: set[int] = set()
        self.finished: dict[int, int] = {}
        self.founded = self.over = False
        self.ended: Ended | None = None

    @property
    def missing(self) -> list[int]:
        """Members that are not connected, cannot be heard or have ended."""
        return self.roll.missing(self.members)

    @property
    def goes_on(self) -> bool:
        """True if members train, wherever they run."""
        return self.founded and self.closed is None and len(self.missing) < len(self.members)

    @property
    def full(self) -> bool:
        """True if the job has as many members as it may."""
        return len(self.members) >= self.limits.members_max

    @property
    def room(self) -> int:
        """Number of processes for which the job has room."""
        return self.limits.members_max - len(self.members) + len(self.missing)

    @property
    def closed(self) -> str | None:
        """Reason why no process may join, or leave in order; None if it may."""
        if self.over or self.ended is not None:
            return "the job has ended"
        return None if self.founded else "the job has not begun yet: some of its ranks are still to come"

    def has(self, member: int) -> bool:
        """Return whether the member goes on, or went on to the end."""
        return member in self.members

    def misses(self, member: int) -> bool:
        """Return whether the job goes on and the member has not left in order, so that another process may take its place."""
        return self.goes_on and not self.finished and member not in self.left

    def follow(self, decision: _native.MemberAction) -> None:
        """Record a decision of the machine."""
        before, self.members, self.epoch = self.members, tuple(decision.members), decision.epoch or 0
        self.shut_out.update(decision.evicted)
        # An epoch that was planned without a member may come to nothing.
        self.left = self.left.union(before) - {*self.members, *decision.evicted}

    def meet(self, members: Sequence[int]) -> None:
        """Record that these meet, after which another machine decides."""
        self.members, self.epoch = tuple(members), 0
        self.left.difference_update(members)
        self.finished.clear()

    def drop(self, lost: Collection[int]) -> None:
        """Record members that were lost before all had met."""
        self.shut_out.update(lost)
        self.members = tuple(each for each in self.members if each not in lost)
