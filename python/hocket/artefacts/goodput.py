"""Goodput of an elastic job: the part of its ranks' work that counts, and the rest by cause."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

Unit = Literal["samples", "steps of a rank"]


class Lost(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Work that ranks would have done undisturbed in the time that changes of members took, by cause.

    Measured against a mean pace, a cause that took no time may come out slightly below zero.

    Attributes:
        standing_still: from the moment at which ranks miss a lost one until training goes on.
        done_again: communication of an interrupted step, and the lost ranks' samples of it.
        joining: meetings with newcomers, and steps beside which they take the state.
        leaving: steps after which ranks leave in order.
        too_few_ranks: waits for others to join.
    """

    standing_still: float = 0.0
    done_again: float = 0.0
    joining: float = 0.0
    leaving: float = 0.0
    too_few_ranks: float = 0.0

    @property
    def total(self) -> float:
        """Sum over the causes."""
        return self.standing_still + self.done_again + self.joining + self.leaving + self.too_few_ranks


class Goodput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Committed work over that of an undisturbed run, from the job's first step to its last one, or to the last one so far.

    Undisturbed, a rank keeps the pace of the steps between changes, with as many ranks.

    Attributes:
        unit: of work; "steps of a rank" where samples are not drawn with `hk.batches`.
        committed: work in steps that stand.
        undisturbed: work of the same ranks in the same time, if nothing had changed.
        all_along: work of as many ranks as began, in all of that time.
        steps: number of steps.
        time_s: seconds from the first step to the last one.
        ranks_s: sum over ranks of the seconds for which each was a member of the job in that time.
        lost: the difference of `undisturbed` and `committed`, by cause.
    """

    unit: Unit
    committed: int
    undisturbed: float
    all_along: float
    steps: int
    time_s: float
    ranks_s: float
    lost: Lost

    @property
    def share(self) -> float:
        """Goodput: committed work over undisturbed work."""
        return self.committed / self.undisturbed

    @property
    def share_of_all(self) -> float:
        """Committed work over that of as many ranks as began, in all of that time."""
        return self.committed / self.all_along


def whole(records: Iterable[Goodput]) -> Goodput | None:
    """Return the goodput of a job from its records, each of which includes those before it; None without any.

    A launcher that has taken another one's place begins anew: then the last records of all are added.
    """
    last: list[Goodput] = []
    for each in records:
        if last and each.time_s >= last[-1].time_s:
            last.pop()
        last.append(each)
    if not last:
        return None
    alike = [each for each in last if each.unit == last[-1].unit]
    lost = [asdict(each.lost) for each in alike]
    return Goodput(
        unit=last[-1].unit,
        committed=sum(each.committed for each in alike),
        undisturbed=sum(each.undisturbed for each in alike),
        all_along=sum(each.all_along for each in alike),
        steps=sum(each.steps for each in alike),
        time_s=sum(each.time_s for each in alike),
        ranks_s=sum(each.ranks_s for each in alike),
        lost=Lost(**{cause: sum(each[cause] for each in lost) for cause in lost[0]}),
    )
