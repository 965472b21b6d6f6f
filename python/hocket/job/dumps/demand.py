"""Demand of dumps: one rank's, when its job fails, or a user's. Each rank writes its own when it next reports how it gets on."""

from __future__ import annotations

import time

from hocket.job.live.blame import is_silent
from hocket.job.live.observer import Observer

LOOK_S = 0.05
LIMIT_S = 5.0
"""Time in which ranks that run Python have written: some times their interval of a second."""


def demand(observer: Observer, *, own: int | None = None) -> tuple[list[int], list[int]]:
    """Have all ranks write dumps; return those that have, and those that have not: they are silent, or take longer.

    `own`: rank of the caller, which is not waited for. RendezvousError: the store cannot be asked.
    """
    until_s = time.monotonic() + LIMIT_S
    number = observer.look(dumps=True).dumps
    while True:
        view = observer.look()
        here = {rank: seen for rank, seen in view.ranks.items() if rank not in view.gone and rank != own}
        written = [rank for rank, seen in here.items() if seen.status.dumps >= number]
        lacking = {rank: seen for rank, seen in here.items() if rank not in written}
        silent = all(is_silent(seen.age_s, seen.status) for seen in lacking.values())
        if silent or time.monotonic() > until_s:
            return written, list(lacking)
        time.sleep(LOOK_S)
