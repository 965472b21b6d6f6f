"""Python stack of a rank: as it reports it when it does one thing for long, or when an observer asks, or as `process` gets it if it
runs no Python."""

from __future__ import annotations

import re
import time

from hocket.errors import RendezvousError, UsageError
from hocket.job.live import process
from hocket.job.live.blame import is_silent
from hocket.job.live.observer import Observer, Seen, View
from hocket.job.live.status import long_after_s

ANSWER_S = 5.0
"""Time in which a rank that runs Python answers: some times its interval of a second."""
LOOK_S = 0.1
EXCUSED = re.compile(
    r"\bin _*(?:\w+_)?(?:save|saves|saving|checkpoint|evaluate|evaluation|validate|validation|compile(?!_wrapper))(?:_\w+)?$",
    re.MULTILINE,
)
"""Functions that take long, end, and may be one rank's alone: by their names, in the script, in PyTorch and in trainers."""


def is_excused(stack: str) -> bool:
    """Return whether a rank saves, evaluates or compiles, by its stack.

    >>> [is_excused(f'File "a.py", line 1, in {name}') for name in ("save", "_save_checkpoint", "compile_fx")]
    [True, True, True]
    >>> [is_excused(f'File "save.py", line 1, in {name}') for name in ("train", "compile_wrapper")]
    [False, False]
    """
    return EXCUSED.search(stack) is not None


def now(observer: Observer, rank: int, view: View, *, silent: bool) -> str:
    """Return the stack of a rank that is late, from the last look if it has it. `silent`: as in `Late`; errors: as `asked`."""
    seen = view.ranks[rank]
    status = seen.status
    if not silent and status.stack is not None and status.doing_s >= long_after_s(status.step_s):
        return status.stack
    if silent and status.whereabouts is not None and process.is_here(status.whereabouts):
        return unasked(rank, seen)
    return asked(observer, rank)


def asked(observer: Observer, rank: int) -> str:
    """Return the stack of a rank's main thread. UsageError: there is no such rank. RendezvousError: it does not answer."""
    view = observer.look()
    if rank not in view.ranks:
        known = ", ".join(map(str, view.ranks)) or "none yet"
        raise UsageError(f"rank {rank} has not reported\nhint: these have: {known}")
    seen = view.ranks[rank]
    before = seen.status.stacks
    until_s = time.monotonic() + ANSWER_S + seen.status.interval_s
    while not is_silent(seen.age_s, seen.status) and time.monotonic() < until_s:
        seen = observer.look(stack_of=rank).ranks.get(rank, seen)
        if seen.status.stacks > before and seen.status.stack is not None:
            return seen.status.stack
        time.sleep(LOOK_S)
    return unasked(rank, seen)


def unasked(rank: int, seen: Seen) -> str:
    """Return the stack of a rank that does not answer, innermost call first. RendezvousError: it is stopped, or elsewhere."""
    status = seen.status
    who, known = f"rank {rank} on {status.host}", status.whereabouts
    if known is not None and process.is_here(known):
        if process.is_stopped(known):
            raise RendezvousError(
                f"{who} is stopped, by a signal or a debugger, and answers nothing\n"
                f"hint: `kill -CONT {status.process}` on {status.host} lets it go on"
            )
        if (stack := process.native_stack(known)) is not None:
            return (
                f"{who} reports nothing now: native code holds Python's lock, or its network is down; innermost call first\n"
                f"{stack}"
            )
    raise RendezvousError(
        f"{who} does not answer: it is stopped, or holds Python's lock in native code\n"
        f"hint: `py-spy dump --native --pid {status.process}` on {status.host} shows it all the same"
    )
