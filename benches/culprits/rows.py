"""Rows of `python -m benches culprits`: a kind of culprit each, on each system."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from benches.culprits.cases import CASES, CULPRIT, SYSTEMS, TOP, WARNING, Case
from benches.culprits.jobs import Found, run, shown
from benches.row import Row
from hocket.errors import PeerError

LATE_S = 5.0
"""Longest time from an error, or from the end of the others' patience, until all ranks know."""
WARNED_S = 1.1
"""Longest time until the launcher warns, with the stack: three median steps, of 0.02 s and less, and one second."""
ENDS = {
    "hocket run": "until all have ended",
    "elastic": "until the others have made a step without it",
    "torchrun": "until the others have ended",
    WARNING: "until the launcher warns of it",
    TOP: "until it is named, where the job ends in its last word",
}


def is_right(found: Found, system: str) -> bool:
    """Return whether the final output names the culprit; elastic jobs must continue to the end, with no other rank left out."""
    if system == "torchrun":
        return found.all_name_culprit
    if system in (WARNING, TOP):
        return found.names_culprit
    return found.names_culprit and (found.code == 0) == (system == "elastic")


def words_of(found: Found, system: str) -> str:
    if system == "torchrun":
        return shown(found.data)
    ranks = ", ".join(map(str, found.blamed)) or "nobody"
    if system in (WARNING, TOP):
        return f"{'warns of' if system == WARNING else 'names'} rank {ranks}"
    what = "goes on without" if system == "elastic" else "blames"
    return f"{what} rank {ranks}, exit code {found.code}"


def rows(case: Case, systems: tuple[str, ...], runs: int) -> Iterator[Row]:
    """Number of correct blames and time for each system. PeerError if a job did not begin, or nobody noticed."""
    for system in (each for each in systems if each in case.systems):
        found = [run(case, system) for _ in range(runs)]
        wrong = [each for each in found if not is_right(each, system)]
        right = len(found) - len(wrong)
        seen = dict.fromkeys(words_of(each, system) for each in found)
        yield Row(
            name=case.kind,
            what=f"{system}: rank {CULPRIT} {case.title}: right; {'; '.join(seen)}",
            value=right,
            target=runs,
            least=True,
            unit=f"of {runs}",
        )
        took_s = [each.took_s for each in found if each.took_s is not None]
        if len(took_s) < len(found):
            raise PeerError(f"{case.kind}, {system}: nobody noticed\n{found[-1].said}")
        after = "after the time-out, " if case.waits and system not in (WARNING, TOP) else ""
        yield Row.over(
            took_s,
            name=case.kind,
            what=f"{system}: {after}{ENDS[system]}",
            target=WARNED_S if system == WARNING else LATE_S,
            unit="s",
        )


def rows_of(systems: tuple[str, ...] = SYSTEMS, runs: int = 1) -> dict[str, Callable[[], Iterator[Row]]]:
    return {kind: partial(rows, case, systems, runs) for kind, case in CASES.items()}
