"""Log of the ranks for which a launcher waits after others have ended: they may save something, or hang."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

FIRST_S = 30.0
"""Time that saving may take before the first line. Each line comes after twice the time of the one before."""

log = logging.getLogger("hocket.run")


class LastOnes:
    """Ranks that run when the first ones have ended. The launcher ends none of them: only a script knows how long it needs."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since_s: float | None = None
        self._next_s = FIRST_S

    def note(self, running: Sequence[tuple[int, str]]) -> None:
        """Log, when due, the ranks that still run, with their hosts, after others have ended well."""
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
