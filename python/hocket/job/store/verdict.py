"""Verdict on the rank that ended a job: a pure function of all reports and exits, so that no order of exits decides.

Most ranks of a failed job fail because of another one, and name it. At the end of such a chain is a rank that blames no other: it
raised, was killed, ended by itself, or still runs and does nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Report:
    """Report of a rank as it left.

    Attributes:
        reason: reason for giving up; None: it left in order, as far as its script is concerned.
        cause: the rank because of which it does not go on; None: no other one.
        why: what that rank did, as `PeerError.why` has it.
    """

    reason: str | None
    cause: int | None = None
    why: str | None = None


@dataclass(frozen=True, kw_only=True)
class Exit:
    """End of a process: `code` is 128 + N for signal N. `ended`: True if the launcher ended it."""

    code: int
    ended: bool = False

    @property
    def killed(self) -> bool:
        """True if something else than the launcher sent the process a signal."""
        return self.code > SIGNALLED and not self.ended


SIGNALLED = 128


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Rank at fault. `accusers`: ranks that do not go on because of it, or of other accusers; `why`: the first accuser's reason."""

    rank: int
    accusers: tuple[int, ...] = ()
    why: str | None = None


def verdict(
    exits: Mapping[int, Exit], reports: Mapping[int, Report], lost: Sequence[int] = ()
) -> Verdict | None:
    """Return the rank at fault, from data in order of time; `lost`: ranks whose loss ended an elastic job. None: no known
    failure.

    >>> late = Report(reason="PeerError: …", cause=1, why="timeout")
    >>> verdict({0: Exit(code=1), 2: Exit(code=1)}, {0: late, 2: late})
    Verdict(rank=1, accusers=(0, 2), why='timeout')
    """
    accused = {by: each.cause for by, each in reports.items() if each.cause not in (None, by)}
    if accused:
        return _most_accused({by: of for by, of in accused.items() if of is not None}, exits, reports)
    if lost:
        return Verdict(rank=lost[0])
    gave_up = [by for by, each in reports.items() if each.reason is not None]
    by_signal = [rank for rank, each in exits.items() if each.killed]
    by_itself = [rank for rank, each in exits.items() if each.code != 0 and not each.ended]
    for ranks in (gave_up, by_signal, by_itself):
        if ranks:
            return Verdict(rank=ranks[0])
    return None


def settled(running: Collection[int], reports: Mapping[int, Report]) -> bool:
    """Return whether no running rank may report anything new: others do not go on because of each of them.

    A rank that has given a reason is ending, and its exit code is still to come.

    >>> late = Report(reason="PeerError: …", cause=1, why="timeout")
    >>> settled([1], {0: late}), settled([1], {0: late, 1: Report(reason="ValueError: …")})
    (True, False)
    """
    accused = {each.cause for each in reports.values()}
    return all(rank in accused and rank not in reports for rank in running)


def _most_accused(
    accused: Mapping[int, int], exits: Mapping[int, Exit], reports: Mapping[int, Report]
) -> Verdict:
    """Return the end of most chains; among ranks that accuse each other, the one most accused, or accused first."""
    in_order = dict.fromkeys(accused.values())
    ends = dict.fromkeys((of for of in in_order if any(of in _ends(by, accused) for by in accused)), 0)
    for by in accused:
        for end in _ends(by, accused):
            ends[end] += 1
    direct = {end: [by for by, of in accused.items() if of == end] for end in ends}

    def weight(end: int) -> tuple[int, int, bool]:
        own = end in reports and reports[end].reason is not None and end not in accused
        died = end in exits and exits[end].killed
        return ends[end], len(direct[end]), own or died

    # `max` returns the first of equals.
    worst = max(ends, key=weight)
    led_here = tuple(sorted(by for by in accused if by != worst and worst in _ends(by, accused)))
    return Verdict(rank=worst, accusers=led_here, why=reports[direct[worst][0]].why)


def _ends(by: int, accused: Mapping[int, int]) -> list[int]:
    """Return the end of a rank's chain of accusations: a rank that accuses no other, or a circle of several."""
    path = [by]
    while (of := accused.get(path[-1])) is not None:
        if of in path:
            return path[path.index(of) :]
        path.append(of)
    return path[-1:]
