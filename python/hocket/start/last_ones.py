"""Says for which ranks a launcher still waits after others have ended: they may save something, or hang."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

FIRST_S = 30.0
"""Saving may take that long. Each line comes after twice the time of the one before."""

log = logging.getLogger("hocket.run")


class LastOnes:
    """Those that run when the first ones have ended. The launcher ends none of them: only a script knows how long it needs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nobody has ended."""
        self._clock = clock
        self._since_s: float | None = None
        self._next_s = FIRST_S

    def note(self, running: Sequence[tuple[int, str]]) -> None:
        """Some have ended well; the ranks that still run, with their hosts."""
        now_s = self._clock()
        if self._since_s is None:
            self._since_s = now_s
        waited_s = now_s - self._since_s
        if waited_s < self._next_s:
            return
        self._next_s = 2 * waited_s
        log.warning(
            "others have ended %.0f s ago, and the job waits for %s\nhint: a rank may save something now; if it hangs, "
            "`py-spy dump --pid PID` says where, and Ctrl-C ends it",
            waited_s,
            " and ".join(f"rank {rank} on {host}" for rank, host in running),
        )
