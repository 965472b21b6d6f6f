"""Ranks of an elastic job that do not come: they hang, are late, or have ended their scripts before the other ranks."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from hocket.errors import EpochError, PeerError, RendezvousError
from hocket.job.rendezvous import Job
from hocket.members.membership import Membership


@contextlib.contextmanager
def without_the_absent(membership: Membership) -> Iterator[None]:
    """Report ranks that do not come when a wait runs out of time, or another rank's end makes it pointless.

    EpochError: the coordinator has the report, and decides which ranks go on, as when a rank dies.
    """
    try:
        yield
    except PeerError as error:
        if error.why == "timeout":
            membership.give_up()
        elif error.why == "left" and error.rank is not None:
            membership.give_up(error.rank)
        else:
            raise
        raise EpochError(error.summary) from error


def gathered_without_the_absent(membership: Membership, gather: Callable[[], list[Any]]) -> list[Any]:
    """Return what `gather` gives, which waits for all ranks at the store but lost ones. Ranks that do not come count as lost.

    RendezvousError: `gather` raises it, or the missing ranks cannot be ended.
    """
    membership.waits = True
    try:
        try:
            return gather()
        except RendezvousError as error:
            if not error.missing:
                raise
            ended = [rank for rank in error.missing if rank in membership.finished]
        for rank in ended or (None,):
            membership.give_up(rank)
        return gather()
    finally:
        membership.waits = False


def check_finished(finished: Mapping[int, int], members: Collection[int], everyone: Job, step: int) -> None:
    """Raise PeerError if one of the `members` no longer takes part in that step. `finished`: by rank whose script has ended, its
    number of steps; `everyone`: the job of all ranks that have met."""
    for rank, steps in tuple(finished.items()):
        if rank in members and steps <= step:
            raise PeerError(
                f"rank {rank} on {everyone.hosts[rank]} finished after {steps} steps, while rank {everyone.rank} on "
                f"{everyone.host} is in step {step + 1}",
                rank=rank,
                host=everyone.hosts[rank],
                why="left",
            )
