"""Changes of a job's ranks, and who is told of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A process that trains. `member` stays its own as long as it lives; `rank` is its place among the others."""

    member: int
    rank: int
    host: str

    def __str__(self) -> str:
        """A description for people."""
        return f"rank {self.rank} on {self.host}"


@dataclass(frozen=True, kw_only=True)
class Change:
    """A job's ranks before and after a change, by rank; at the start of a job, there were none before.

    Attributes:
        why: what happened, a sentence without a full stop.
        step: the first that is of the new ranks; steps count from 0, where the job started.
        old, new: who trained until then, and who does from then on.

    >>> one, two = (Worker(member=each, rank=each, host="a") for each in range(2))
    >>> change = Change(why="rank 1 on a was lost", step=7, old=(one, two), new=(one,))
    >>> change.old_world, change.new_world, [str(each) for each in change.lost]
    (2, 1, ['rank 1 on a'])
    """

    why: str
    step: int
    old: tuple[Worker, ...]
    new: tuple[Worker, ...]

    @property
    def old_world(self) -> int:
        """How many there were; 0 at the start."""
        return len(self.old)

    @property
    def new_world(self) -> int:
        """How many there are."""
        return len(self.new)

    @property
    def lost(self) -> tuple[Worker, ...]:
        """Who does not train any more, with the ranks that they had; also those who left in order."""
        return _without(self.old, self.new)

    @property
    def joined(self) -> tuple[Worker, ...]:
        """Who trains from now on and did not before: at the start, everybody."""
        return _without(self.new, self.old)


Told = Callable[[Change], object]
"""What is called at each change."""


class Changes:
    """Who trains now, and what is to be called when that changes."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        """The job starts with these."""
        self._last = Change(why="the job starts", step=0, old=(), new=tuple(workers))
        self._told: list[Told] = []

    @property
    def workers(self) -> tuple[Worker, ...]:
        """Those of the present, by rank."""
        return self._last.new

    def come(self, before: Sequence[Worker], step: int) -> None:
        """This rank has come to a job of these, which trains: all of the present do from this step on."""
        why = _named(_without(self.workers, before), "joined")
        self._last = Change(why=why, step=step, old=tuple(before), new=self.workers)

    def call(self, told: Told) -> None:
        """At once, of the last change, and at each one from now on, in the order of these calls."""
        self._told.append(told)
        told(self._last)

    def go_on(self, workers: Sequence[Worker], step: int, *, left: bool = False) -> None:
        """From this step on, these alone train: others were lost, or have `left` in order, or have joined. Errors of what is called
        are the caller's. Nobody is called where all are as they were: ranks also meet for one that then does not come."""
        if tuple(workers) == self.workers:
            return
        gone, new = _without(self.workers, workers), _without(workers, self.workers)
        lost = "was lost" if len(gone) == 1 else "were lost"
        parts = [(gone, "left" if left else lost), (new, "joined")]
        why = ", ".join(_named(those, how) for those, how in parts if those) or "ranks have other places"
        self._last = Change(why=why, step=step, old=self.workers, new=tuple(workers))
        for told in self._told:
            told(self._last)


def _named(workers: Sequence[Worker], how: str) -> str:
    """
    >>> _named([Worker(member=5, rank=each, host="a") for each in (1, 3)], "left")
    'rank 1 on a and rank 3 on a left'
    """
    return f"{' and '.join(map(str, workers))} {how}"


def _without(workers: Sequence[Worker], others: Sequence[Worker]) -> tuple[Worker, ...]:
    members = {each.member for each in others}
    return tuple(each for each in workers if each.member not in members)
