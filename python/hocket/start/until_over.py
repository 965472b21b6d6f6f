"""Wait of a coordinator that has started no ranks, until its job is over: what it knows of them is who is connected."""

from __future__ import annotations

import functools
import signal
import time
from collections.abc import Callable

from hocket.job.store.server import Server
from hocket.members.coordination import Coordination
from hocket.start.processes import SIGNALLED

TICK_S = 0.02
LINGER_S = 2.0
"""Time in which ranks that have not come yet may hear why the job ends."""
END_S = 10.0
"""Time to wait for ranks that were told to end."""


def until_over(
    coordination: Callable[[], Coordination], server: Server, signals: list[int], patience_s: float
) -> bool:
    """Wait until the job ends, is told to end, or no rank has been connected for `patience_s`; return True in the last case."""
    deadline_s = time.monotonic() + patience_s
    while not (signals or server.failure is not None):
        job = coordination()
        if job.roster.over or job.roster.ended is not None:
            break
        if job.roster.goes_on:
            deadline_s = time.monotonic() + patience_s
        elif time.monotonic() > deadline_s:
            return True
        time.sleep(TICK_S)
    return False


def tell_ranks(coordination: Coordination, server: Server, why: str | None) -> None:
    """Wait, not for long, until all ranks have heard that the job has ended. `why`: the reason, if it must be ended first."""
    if why is not None:
        server.call(functools.partial(coordination.end, why))
    now_s = time.monotonic()
    ends = why is not None or coordination.roster.ended is not None
    least_s, most_s = now_s + (LINGER_S if ends else 0.0), now_s + END_S
    while time.monotonic() < (most_s if len(coordination.roll) else least_s):
        time.sleep(TICK_S)


def end_by(signals: list[int]) -> None:
    """End this process as the first of these signals asks, if there is one: KeyboardInterrupt or SystemExit."""
    if signals:
        if signals[0] == signal.SIGINT:
            raise KeyboardInterrupt
        raise SystemExit(SIGNALLED + signals[0])
