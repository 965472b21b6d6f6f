"""Kinds of culprits: the failure of each, and the way in which the others notice."""

from __future__ import annotations

from msgspec import Struct

WORLD, CULPRIT = 3, 1
LEAST = 2
"""Least number of ranks of an elastic job."""
STEPS, WRONG_AT = 60, 4
"""Steps of the script, and the step before which, or in which, the culprit goes wrong."""
PATIENCE_S = 5.0
"""Time-out and longest silence of these jobs."""
START_S = 120.0
"""Longest time until ranks begin."""
WARNING = "warning"
"""Words of the launcher, while the job runs, about a rank for which the others wait."""
TOP = "hocket top"
"""Words of `hocket top --json` beside the job, until its end; where others only wait, until the first about the culprit."""
WARNED_PATIENCE_S = 120.0
"""Time-out of jobs that are to be warned of before it, or looked at."""
ENDING = ("hocket run", "elastic", "torchrun")
AT_ONCE = ("hocket run", "torchrun")
"""Systems of cases that elastic jobs have not: these have no process groups, and begin with the same model."""
SYSTEMS = (*ENDING, WARNING, TOP)


class Case(Struct, frozen=True):
    """`kind`: for `rank`; `title`: for people. `waits`: others notice only when their patience ends, and
    are warned of it before. `ending`: systems that can show how the job ends."""

    kind: str
    title: str
    waits: bool = False
    ending: tuple[str, ...] = ENDING

    @property
    def systems(self) -> tuple[str, ...]:
        """Systems that can show the failure."""
        return (*self.ending, *([WARNING] if self.waits else []), TOP)


CASES = {
    each.kind: each
    for each in (
        Case("forward", "raises in forward"),
        Case("backward", "raises in a hook of backward"),
        Case("loader", "raises in a data loader, between steps"),
        Case("sys.exit(3)", "calls sys.exit(3)"),
        Case("caught", "main() catches, and exits with 1"),
        Case("os._exit(5)", "calls os._exit(5)"),
        Case("SIGKILL", "is killed from outside"),
        Case("SIGSEGV", "dies of a segmentation fault"),
        Case("out of memory", "runs out of memory"),
        Case("SIGSTOP", "is stopped", waits=True),
        Case("loop", "loops for ever in Python", waits=True),
        Case("native", "hangs in native code that holds the interpreter", waits=True),
        Case("late loader", "loads a batch for a quarter of an hour", waits=True),
        Case("cut cable", "its host's cable is cut", waits=True),
        Case("full disk", "saves to a disk that is full"),
        Case("early end", "leaves the loop early, and exits with 0"),
        Case("other shape", "calls all_reduce with another shape", ending=AT_ONCE),
        Case("other op", "calls broadcast in place of all_reduce", ending=AT_ONCE),
        Case("other order", "calls broadcast before all_reduce", ending=AT_ONCE),
        Case("other model", "has a layer of another shape", ending=AT_ONCE),
        Case("other buffer", "gets a buffer of another shape"),
    )
}
"""Cases by kind."""
