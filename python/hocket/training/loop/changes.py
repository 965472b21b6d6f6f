"""Changes of a job's ranks, and callbacks that are told of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Worker:
    """Process that trains. `member` stays its own as long as it lives; `rank` is its place among the others."""

    member: int
    rank: int
    host: str

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"


@dataclass(frozen=True, kw_only=True)
class Change:
    """Ranks of a job before and after a change, by rank; at the start of a job, there were none before.

    Attributes:
        why: reason of the change, a sentence without a full stop.
        step: first step of the new ranks; steps count from 0, where the job started.
        old, new: workers that trained until then, and those that do from then on.

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
        """Number of ranks before; 0 at the start."""
        return len(self.old)

    @property
    def new_world(self) -> int:
        return len(self.new)

    @property
    def lost(self) -> tuple[Worker, ...]:
        """Workers that train no longer, with their former ranks; also those that left in order."""
        return _without(self.old, self.new)

    @property
    def joined(self) -> tuple[Worker, ...]:
        """Workers that train from now on and did not before: at the start, all."""
        return _without(self.new, self.old)


Told = Callable[[Change], object]
"""Callback for each change."""


class Changes:
    """Present workers, and the callbacks for changes of them."""

    def __init__(self, workers: Sequence[Worker]) -> None:
        self._last = Change(why="the job starts", step=0, old=(), new=tuple(workers))
        self._told: list[Told] = []

    @property
    def workers(self) -> tuple[Worker, ...]:
        return self._last.new

    def come(self, before: Sequence[Worker], step: int) -> None:
        """Note that this rank has come to a job of these workers, which trains: all present ones do from this step on."""
        why = _named(_without(self.workers, before), "joined")
        self._last = Change(why=why, step=step, old=tuple(before), new=self.workers)

    def call(self, told: Told) -> None:
        """Call `told` at once with the last change, and at each one from now on, in the order of these calls."""
        self._told.append(told)
        told(self._last)

    def go_on(self, workers: Sequence[Worker], step: int, *, left: bool = False) -> None:
        """Note that these workers alone train from this step on: others were lost, or have `left` in order, or have joined. Errors
        of callbacks are the caller's. Nothing is called if no worker has changed: ranks also meet for one that does not come."""
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
