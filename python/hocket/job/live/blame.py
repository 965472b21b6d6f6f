"""Rank for which the others wait, by what all ranks have reported. Pure.

In synchronous training all ranks take steps of the same length: what tells them apart is who waits. In order: a rank that has ended
the job, as its launcher says; one that is lost, which ends a job unless it is elastic; one that reports nothing any more; one that
has not come to a step for which others have waited long; one that, step for step, lets others wait. What a rank does while others
wait for it is the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from statistics import median

from msgspec import Struct

from hocket.job.live.status import Status
from hocket.job.store.live import Gone
from hocket.job.store.verdict import Report, verdict

SILENT_INTERVALS, SILENT_S = 3, 1.0
"""A rank is silent after so many intervals and so many seconds without a report: its thread may be late on a busy machine."""
LATE_STEPS, LATE_S = 3.0, 1.0
"""A rank is late when others have waited for so many median steps, and at least so many seconds."""
UNEVEN = 0.2
"""A rank lets others wait when they wait so much more of a step than it does."""


class Blame(Struct, frozen=True, kw_only=True):
    """Rank for which others wait. `how`: `failed` (the job has ended), `lost`, `silent`, `late` (now), or `slow` (in each step).
    `why`: for people."""

    rank: int
    how: str
    why: str


def blame(
    reports: Mapping[int, tuple[float, Status]], gone: Mapping[int, Gone], ended: Gone | None = None
) -> Blame | None:
    """Return the rank at fault, or None. `reports`: last status of each rank, with its age in seconds. `ended`: end of the job."""
    if ended is not None and ended.fault is not None:
        return Blame(rank=ended.fault, how="failed", why=ended.message)
    here = {rank: each for rank, each in reports.items() if rank not in gone}
    lost = _lost(here, gone)
    if lost is not None and not any(status.elastic for _, status in here.values()):
        return lost
    return _silent(here) or _late(here) or _slow(here) or lost


def _lost(here: Collection[int], gone: Mapping[int, Gone]) -> Blame | None:
    reports = {
        rank: Report(reason=each.message, cause=None if each.fault == rank else each.fault)
        for rank, each in gone.items()
        if each.fault is not None
    }
    found = verdict({}, reports)
    if found is None:
        return None
    # A rank that calls something else accuses another one, too: what the others say is known in a moment.
    if found.rank in here and len(found.accusers) == 1 and len(here) > 1:
        return None
    own = gone.get(found.rank)
    by = found.rank if own is not None and own.fault == found.rank else found.accusers[0]
    return Blame(rank=found.rank, how="lost", why=gone[by].message.partition("\n")[0])


def _silent(here: Mapping[int, tuple[float, Status]]) -> Blame | None:
    silent = {rank: age_s for rank, (age_s, status) in here.items() if is_silent(age_s, status)}
    if not silent or len(silent) == len(here) > 1:
        # Where nobody reports, no rank is told apart.
        return None
    rank = max(silent, key=silent.__getitem__)
    status = here[rank][1]
    return Blame(
        rank=rank,
        how="silent",
        why=f"rank {rank} on {status.host} (process {status.process}) has reported nothing for {silent[rank]:.1f} s: it is "
        "stopped, holds Python's lock in native code, or its host or network is down",
    )


def is_silent(age_s: float, status: Status) -> bool:
    """Return whether a rank should have reported since."""
    return age_s > SILENT_INTERVALS * status.interval_s + SILENT_S


def _late(here: Mapping[int, tuple[float, Status]]) -> Blame | None:
    waiting = {rank: since_s(*each) for rank, each in here.items() if each[1].doing == "waiting"}
    others = {
        rank: each for rank, each in here.items() if rank not in waiting and each[1].doing != "starting"
    }
    steps_s = [status.step_s for _, status in here.values() if status.step_s is not None]
    patience_s = max(LATE_S, LATE_STEPS * median(steps_s)) if steps_s else LATE_S
    longest_s = max(waiting.values(), default=0.0)
    # What a rank did before the others had waited for long is no reason.
    late = {rank: each for rank, each in others.items() if longest_s - each[0] > patience_s}
    if not late:
        return None
    long = {rank: waited_s for rank, waited_s in waiting.items() if waited_s > patience_s}
    rank = min(late, key=lambda each: (late[each][1].steps, -since_s(*late[each])))
    status = others[rank][1]
    waited_s = max(long.values())
    wait = "waits" if len(long) == 1 else "wait"
    return Blame(
        rank=rank,
        how="late",
        why=f"{ranks_in_words(long)} {wait} for rank {rank} on {status.host}, for {waited_s:.1f} s so "
        f"far; it is {WORDS[status.doing]}, for {since_s(*others[rank]):.1f} s",
    )


def _slow(here: Mapping[int, tuple[float, Status]]) -> Blame | None:
    known = {
        rank: (status.wait_s, status.step_s)
        for rank, (_, status) in here.items()
        if status.wait_s is not None and status.step_s
    }
    if len(known) < 2 or len(known) < len(here):
        return None
    rank = min(known, key=lambda each: known[each][0])
    others = [wait_s for each, (wait_s, _) in known.items() if each != rank]
    step_s = median(step_s for _, step_s in known.values())
    more_s = min(others) - known[rank][0]
    if more_s < UNEVEN * step_s:
        return None
    status = here[rank][1]
    loading = [
        each.loading_s for other, (_, each) in here.items() if other != rank and each.loading_s is not None
    ]
    reason = "its own work takes longer"
    if status.loading_s is not None and loading and status.loading_s - median(loading) > more_s / 2:
        reason = f"it loads data for {status.loading_s:.3f} s, others for {median(loading):.3f} s"
    return Blame(
        rank=rank,
        how="slow",
        why=f"the others wait {more_s:.3f} s of each step for rank {rank} on {status.host}: {reason}",
    )


WORDS = {
    "loading": "between the optimizer's step and the next forward, where it loads data",
    "evaluating": "evaluating",
    "forward": "in forward",
    "backward": "in backward",
    "training": "between steps",
    "starting": "starting",
    "waiting": "waiting",
}


def since_s(age_s: float, status: Status) -> float:
    """Return for how long a rank does what it does, if it still does that."""
    return status.doing_s + age_s


def ranks_in_words(ranks: Collection[int], most: int = 4) -> str:
    """Return the ranks, or their number if there are more than `most`.

    >>> ranks_in_words([1]), ranks_in_words([1, 2]), ranks_in_words(range(9))
    ('rank 1', 'ranks 1, 2', '9 ranks')
    """
    if len(ranks) > most:
        return f"{len(ranks)} ranks"
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
