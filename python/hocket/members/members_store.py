"""Store for threads beside training, also of an elastic job, whose members' ranks are not the store's.

The store knows ranks as they were when all met. Members number themselves anew whenever one is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hocket.errors import RendezvousError
from hocket.job.rendezvous import Job
from hocket.job.store.store import Store


@dataclass(frozen=True)
class Among:
    """Epoch of members: the meeting it follows, its number since then (0: all that have met), and the job of all that have met."""

    generation: int
    epoch: int
    everyone: Job

    @property
    def name(self) -> str:
        """Name that no other epoch of the job has.

        >>> Among(2, 5, None).name
        '2.5'
        """
        return f"{self.generation}.{self.epoch}"


class MembersStore(Store):
    """Store whose ranks are those of an epoch's members. The loss of a member ends their exchange."""

    def __init__(self, job: Job, everyone: Job, who: str) -> None:
        """Connect. `job`: the job of these members."""
        self._members, self._hosts, self._everyone = job.members, job.hosts, everyone
        super().__init__(
            everyone.store.address,
            job.secret,
            rank=None,
            who=who,
            timeout_s=job.settings.start_timeout_s,
        )

    def gather(
        self, name: str, rank: int, world: int, value: Any, timeout_s: float, *, without_lost: bool = False
    ) -> list[Any]:
        del rank, world
        everyone = self._everyone
        # Wrapped, since None stands for a lost rank.
        given = super().gather(name, everyone.rank, everyone.world, [value], timeout_s, without_lost=True)
        own = [given[everyone.members.index(each)] for each in self._members]
        if None in own and not without_lost:
            lost = own.index(None)
            raise RendezvousError(f"rank {lost} on {self._hosts[lost]} is lost", rank=lost)
        return [None if each is None else each[0] for each in own]
