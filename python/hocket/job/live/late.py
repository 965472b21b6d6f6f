"""Ranks for which all others wait, each occurrence told once: what a log needs, where `blame` is what a look needs. Pure.

A rank is late when every other one has waited for longer than two steps and half a second, by its own report, and this one neither
waited when they had, nor reports when it should. As the others wait from the end of their own part on, this is three steps after
the late one should have gone on. What all ranks do at once (the first step, compilation, evaluation, a checkpoint) makes none of
them wait; and after it, they are given as much time again to come back from it. A step is what a rank itself needs for it, without
its waits: with them, a rank that is late in each step would make every step long, and never be late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from msgspec import Struct, structs

from hocket.job.live.blame import is_silent, since_s
from hocket.job.live.status import Status, long_after_s
from hocket.job.store.live import Gone

LATE_STEPS = 2.0
"""Steps for which others wait."""
FIRST_S = 30.0
"""Patience while no rank has made a second step, which tells how long steps take: the first one loads, allocates and compiles. Also
with a rank that evaluates alone, or is excused otherwise, and the most with one that comes back from what all have done."""
OVERDUE_S = 0.4
"""Time by which a report may be late: its thread may be, on a busy machine."""
USUAL_S = 3600.0
"""Time for which a rank that was late makes it usual: until then, another one must be late for twice as long to be told."""

Reports = Mapping[int, tuple[float, Status]]


class Late(Struct, frozen=True, kw_only=True):
    """Rank for which those in `waiting` have waited for `waited_s`, each of them. `silent`: it has not reported meanwhile.
    `unsaid`: how many times it was late since the last warning of it."""

    rank: int
    waited_s: float
    waiting: tuple[int, ...]
    silent: bool
    unsaid: int


class GoesOn(Struct, frozen=True, kw_only=True):
    """Rank that was late for `late_s`, and is no more."""

    rank: int
    late_s: float


@dataclass
class _Record:
    """Record of a rank that is late, since `began_s`. `said`: that it was told; `patience_s`: with it, if it is excused."""

    began_s: float
    said: bool = False
    patience_s: float = 0.0


@dataclass
class Lateness:
    """Memory of who is late, from look to look. `least_s`: wait of the others, beside the steps, that makes a rank late."""

    least_s: float
    _records: dict[int, _Record] = field(default_factory=dict, init=False)
    _unsaid: dict[int, int] = field(default_factory=dict, init=False)
    _waited_s: dict[int, float] = field(default_factory=dict, init=False)
    """Time of the last report of each rank in which it waited."""
    _usual: tuple[float, float] = field(default=(0.0, 0.0), init=False)
    """Longest time for which a rank was late, of those told, and until when it counts."""

    def look(self, reports: Reports, gone: Mapping[int, Gone], now_s: float) -> tuple[Late | GoesOn, ...]:
        """Return what is to be told after a look at time `now_s`. `reports`: last status of each rank, with its age in seconds."""
        here = {rank: each for rank, each in reports.items() if rank not in gone}
        self._waited_s |= {
            rank: now_s - age_s for rank, (age_s, each) in here.items() if each.doing == "waiting"
        }
        late = {each.rank: each for each in self._late(here, now_s)}
        told: list[Late | GoesOn] = []
        for rank in list(self._records):
            if rank not in here:
                # That it is lost is told by others.
                del self._records[rank]
            elif rank not in late and not is_silent(*here[rank]):
                told += self._goes_on(rank, now_s - here[rank][0])
        for rank, each in late.items():
            record = self._records.setdefault(rank, _Record(now_s - each.waited_s))
            if not record.said and each.waited_s > max(record.patience_s, 2 * self._usual_s(now_s)):
                record.said = True
                told.append(structs.replace(each, unsaid=self._unsaid.pop(rank, 0)))
        return tuple(told)

    def excuse(self, rank: int) -> None:
        """Tell again of a late rank when the others have waited for FIRST_S: what it does takes long, and ends."""
        if (record := self._records.get(rank)) is not None:
            record.said, record.patience_s = False, FIRST_S

    def _late(self, here: Reports, now_s: float) -> Iterable[Late]:
        overdue = {rank for rank, each in here.items() if _is_overdue(*each)}
        waiting = {rank for rank, (_, each) in here.items() if each.doing == "waiting"}
        waits = {rank: here[rank] for rank in sorted(waiting - overdue)}
        shortest_s = min((since_s(*each) for each in waits.values()), default=0.0)
        # One that has waited as they do, and has reported since that it goes on, is only the first to say so.
        began_s = now_s - shortest_s
        others = [
            rank
            for rank, (_, each) in here.items()
            if rank not in waiting
            and self._waited_s.get(rank, began_s) <= began_s
            and (rank in overdue or (each.trains and not self._idles(each, here)))
        ]
        # A rank that says what it does explains the waits; one whose report is late may wait, too. Of those that wait, one that is
        # stopped has stopped meanwhile.
        others = [rank for rank in others if rank not in overdue] or others or sorted(waiting & overdue)
        if not others or len(others) > len(waits):
            return
        patience_s = self._patience_s(here, waits, others)
        # They may have gone on since they have reported, and so may have the others.
        if min(status.doing_s for _, status in waits.values()) <= patience_s:
            return
        # A rank that was heard since, though later than it should be, may wait as they do.
        ages_s = {rank: here[rank][0] for rank in others}
        if not all(
            (age_s if rank in overdue else shortest_s - age_s) > patience_s for rank, age_s in ages_s.items()
        ):
            return
        for rank in others:
            silent = rank in overdue
            yield Late(rank=rank, waited_s=shortest_s, waiting=tuple(waits), silent=silent, unsaid=0)

    def _idles(self, status: Status, here: Reports) -> bool:
        """Return whether a rank has never made a step where others have made some: it serves them, or has yet to join."""
        return status.doing == "starting" and any(each.step_s is not None for _, each in here.values())

    def _patience_s(self, here: Reports, waits: Reports, others: Iterable[int]) -> float:
        steps_s = [each.step_s - (each.wait_s or 0.0) for _, each in here.values() if each.step_s is not None]
        if not steps_s or any(here[rank][1].doing == "evaluating" for rank in others):
            return max(self.least_s, FIRST_S)
        worked_s = min(each.worked_s for _, each in waits.values())
        return self.least_s + max(LATE_STEPS * median(steps_s), min(LATE_STEPS * worked_s, FIRST_S))

    def _usual_s(self, now_s: float) -> float:
        usual_s, until_s = self._usual
        return usual_s if now_s < until_s else 0.0

    def _goes_on(self, rank: int, at_s: float) -> Iterable[GoesOn]:
        record = self._records.pop(rank)
        late_s = max(0.0, at_s - record.began_s)
        if record.said:
            self._usual = max(self._usual_s(at_s), late_s), at_s + USUAL_S
            yield GoesOn(rank=rank, late_s=late_s)
        else:
            self._unsaid[rank] = self._unsaid.get(rank, 0) + 1


def _is_overdue(age_s: float, status: Status) -> bool:
    """Return whether a rank should have reported since, at the latest that it does for long what it did then."""
    long_s = long_after_s(status.step_s)
    due_s = status.interval_s
    if status.doing_s < long_s:
        due_s = min(due_s, long_s - status.doing_s)
    return age_s > due_s + OVERDUE_S
