"""Deadline for calls without one: MPI, or a library that is stuck. The process prints where it was, and ends."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Deadline:
    """Thread that watches for a deadline; the job's other ranks notice the end of this one.

    >>> with Deadline("rank 0", timeout_s=60).over("a sum"):
    ...     1 + 1
    2
    """

    def __init__(self, who: str, *, timeout_s: float) -> None:
        """Start watching, with nothing to watch yet."""
        self._who, self._timeout_s = who, timeout_s
        self._doing: tuple[str, float] | None = None
        threading.Thread(target=self._watch, daemon=True).start()

    @contextmanager
    def over(self, what: str) -> Iterator[None]:
        """End the process unless the block ends in time."""
        self._doing = (what, time.monotonic() + self._timeout_s)
        try:
            yield
        finally:
            self._doing = None

    def _watch(self) -> None:
        """Check rarely, so as not to disturb the measurement."""
        while True:
            time.sleep(min(1.0, self._timeout_s / 4))
            doing = self._doing
            if doing is not None and time.monotonic() > doing[1]:
                os.write(
                    2,
                    f"error: {self._who}: {doing[0]} is not over after {self._timeout_s:g} s\n"
                    "hint: HOCKET_TIMEOUT_S sets another deadline\n".encode(),
                )
                os._exit(1)
