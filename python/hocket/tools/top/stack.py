"""Python stack of a rank, which it reports when an observer asks for it."""

from __future__ import annotations

import time

from hocket.errors import RendezvousError, UsageError
from hocket.job.live.observer import Observer, View

ANSWER_S = 5.0
"""Time in which a rank that runs Python answers: some times its interval of a second."""
LOOK_S = 0.2


def asked(observer: Observer, rank: int) -> str:
    """Return the stack of a rank's main thread. UsageError: there is no such rank. RendezvousError: it does not answer."""
    view = observer.look()
    if rank not in view.ranks:
        known = ", ".join(map(str, view.ranks)) or "none yet"
        raise UsageError(f"rank {rank} has not reported\nhint: these have: {known}")
    before = view.ranks[rank].status.stacks
    interval_s = view.ranks[rank].status.interval_s
    until_s = time.monotonic() + ANSWER_S + interval_s
    while time.monotonic() < until_s:
        view = observer.look(stack_of=rank)
        status = view.ranks[rank].status
        if status.stacks > before and status.stack is not None:
            return status.stack
        time.sleep(LOOK_S)
    raise RendezvousError(no_answer(rank, view))


def no_answer(rank: int, view: View) -> str:
    """Return what a rank that does not answer may be doing, and how to see it."""
    status = view.ranks[rank].status
    return (
        f"rank {rank} on {status.host} does not answer: it is stopped, or holds Python's lock in native code\n"
        f"hint: `py-spy dump --native --pid {status.process}` on {status.host} shows it all the same"
    )
