"""How far this host's monotonic clock is from the job's, as NTP finds it (RFC 5905, section 8), read while a run goes on.

The job's clock is that of the store. What readings mean is in `artefacts/clock.py`.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from pathlib import Path

from hocket.artefacts.clock import Reading
from hocket.artefacts.trace import append_clock, clock_file
from hocket.errors import RendezvousError
from hocket.launch.store import Store

PINGS = 10

INTERVAL_S = 10.0
"""Between two readings: quartz that warms up changes its rate over minutes; ten pings take a thread beside it a millisecond."""


def read(ask: Callable[[], int]) -> Reading:
    """From the fastest of PINGS round trips: queues only add time, half the trip bounds what they hide."""
    return min((_ping(ask) for _ in range(PINGS)), key=lambda reading: reading.error_ns)


def _ping(ask: Callable[[], int]) -> Reading:
    asked_ns = time.monotonic_ns()
    there_ns = ask()
    answered_ns = time.monotonic_ns()
    middle_ns = (asked_ns + answered_ns) // 2
    return Reading(middle_ns, there_ns - middle_ns, (answered_ns - asked_ns + 1) // 2)


class ClockLog:
    """Reads the clock at once, every INTERVAL_S, and when it is closed; each reading is in the trace when it is made."""

    def __init__(self, store: Store, directory: Path, rank: int) -> None:
        """Raises RendezvousError when the store does not answer, ArtefactError when the reading cannot be written."""
        self._store, self._directory, self._rank = store, directory, rank
        self._over = threading.Event()
        clock_file(directory, rank).unlink(missing_ok=True)
        self._read()
        self._thread = threading.Thread(target=self._run, name="hocket-clock", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The last reading; idempotent. A job that has lost its store ends with the readings that it has."""
        if self._over.is_set():
            return
        self._over.set()
        self._thread.join()
        with contextlib.suppress(RendezvousError):
            self._read()

    def _run(self) -> None:
        with contextlib.suppress(RendezvousError):
            while not self._over.wait(INTERVAL_S):
                self._read()

    def _read(self) -> None:
        append_clock(self._directory, self._rank, read(self._store.clock_ns))
