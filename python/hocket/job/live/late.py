"""Ranks for which all others wait, each occurrence told once: what a log needs, where `blame` is what a look needs. Pure.

A rank is late when every other one has waited for longer than three steps and a second more, and it neither waits itself nor is
about to. What all ranks do at once (the first step, compilation, evaluation, a checkpoint) makes none of them wait, and none late.
A step is what a rank itself needs for it, without its waits: with them, a rank that is late in each step would make every step
long, and never be late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from msgspec import Struct, structs

from hocket.job.live.blame import LATE_STEPS, is_silent, since_s
from hocket.job.live.status import Status
from hocket.job.store.live import Gone

MORE_S = 1.0
"""Seconds beyond the steps: reports come once a second."""
FIRST_S = 30.0
"""Patience while no rank has made a second step, which tells how long steps take: the first one loads, allocates and compiles."""
QUIET_S, QUIET_MAX_S = 60.0, 3600.0
"""Time after a warning of a rank in which there is no other one of it; doubled by each, up to the latter."""

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
    """Record of a rank that has been late. `began_s`: start of the present occurrence, if any; `said`: that it was told."""

    began_s: float | None = None
    said: bool = False
    quiet_until_s: float = 0.0
    quiet_s: float = QUIET_S
    unsaid: int = 0


@dataclass
class Lateness:
    """Memory of who is late, from look to look. `least_s`: shortest wait of the others that makes a rank late."""

    least_s: float
    _records: dict[int, _Record] = field(default_factory=dict, init=False)

    def look(self, reports: Reports, gone: Mapping[int, Gone], now_s: float) -> tuple[Late | GoesOn, ...]:
        """Return what is to be told after a look at time `now_s`. `reports`: last status of each rank, with its age in seconds."""
        here = {rank: each for rank, each in reports.items() if rank not in gone}
        late = {each.rank: each for each in self._late(here)}
        told: list[Late | GoesOn] = []
        for rank in list(self._records):
            if rank not in here:
                # That it is lost is told by others.
                del self._records[rank]
            elif rank not in late and not is_silent(*here[rank]):
                told += self._goes_on(rank, now_s - here[rank][0])
        for rank, each in late.items():
            told += self._is_late(each, self._records.setdefault(rank, _Record()), now_s)
        return tuple(told)

    def _late(self, here: Reports) -> Iterable[Late]:
        silent = {rank for rank, each in here.items() if is_silent(*each)}
        waits_s = {rank: since_s(*each) for rank, each in here.items() if each[1].doing == "waiting"}
        others = [
            rank
            for rank, (_, each) in here.items()
            if rank not in waits_s and (rank in silent or (each.trains and not self._idles(each, here)))
        ]
        if not others:
            # Of those that wait, one that is stopped has stopped meanwhile.
            others = sorted(silent)
        waits_s = {rank: wait_s for rank, wait_s in waits_s.items() if rank not in others}
        if not others or len(others) > len(waits_s):
            return
        patience_s, longest_s, shortest_s = (
            self._patience_s(here),
            max(waits_s.values()),
            min(waits_s.values()),
        )
        # What a rank did before the others had waited for long is no reason.
        behind = all(rank in silent or longest_s - here[rank][0] > patience_s for rank in others)
        if shortest_s <= patience_s or not behind:
            return
        for rank in others:
            yield Late(
                rank=rank, waited_s=shortest_s, waiting=tuple(waits_s), silent=rank in silent, unsaid=0
            )

    def _idles(self, status: Status, here: Reports) -> bool:
        """Return whether a rank has never made a step where others have made some: it serves them, or has yet to join."""
        return status.doing == "starting" and any(each.step_s is not None for _, each in here.values())

    def _patience_s(self, here: Reports) -> float:
        steps_s = [each.step_s - (each.wait_s or 0.0) for _, each in here.values() if each.step_s is not None]
        patience_s = LATE_STEPS * median(steps_s) + MORE_S if steps_s else FIRST_S
        return max(self.least_s, patience_s)

    def _is_late(self, each: Late, record: _Record, now_s: float) -> Iterable[Late]:
        if record.began_s is None:
            record.began_s = now_s - each.waited_s
            record.said = now_s >= record.quiet_until_s
            if not record.said:
                record.unsaid += 1
                return
            unsaid, record.unsaid = record.unsaid, 0
            record.quiet_until_s = now_s + record.quiet_s
            record.quiet_s = min(2 * record.quiet_s, QUIET_MAX_S)
            yield structs.replace(each, unsaid=unsaid)

    def _goes_on(self, rank: int, at_s: float) -> Iterable[GoesOn]:
        record = self._records[rank]
        if record.began_s is not None:
            if record.said:
                yield GoesOn(rank=rank, late_s=max(0.0, at_s - record.began_s))
            record.began_s, record.said = None, False
