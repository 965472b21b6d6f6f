"""Offset of this host's monotonic clock from the job's, measured like NTP (RFC 5905, section 8) during a run.

The job's clock is the store's. `artefacts/clock.py` defines the meaning of readings.
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
from hocket.job.store.store import Store
from hocket.job.trace_writes import TraceWrites

PINGS = 10

INTERVAL_S = 10.0
"""Seconds between two readings: quartz that warms up changes its rate over minutes; ten pings take a background thread
a millisecond."""


def read(ask: Callable[[], int]) -> Reading:
    """Measure the fastest of PINGS round trips: queues only add time, and half the trip bounds the error."""
    return min((_ping(ask) for _ in range(PINGS)), key=lambda reading: reading.error_ns)


def _ping(ask: Callable[[], int]) -> Reading:
    asked_ns = time.monotonic_ns()
    there_ns = ask()
    answered_ns = time.monotonic_ns()
    middle_ns = (asked_ns + answered_ns) // 2
    return Reading(middle_ns, there_ns - middle_ns, (answered_ns - asked_ns + 1) // 2)


class ClockLog:
    """Log of the clock, read at once, every INTERVAL_S, and on closing; each reading is written to the trace immediately."""

    def __init__(self, store: Store, directory: Path, rank: int) -> None:
        """Start reading. RendezvousError: the store does not answer. ArtefactError: the reading cannot be written."""
        self._store, self._directory, self._rank = store, directory, rank
        self._writes = TraceWrites("readings of the clock")
        self._over = threading.Event()
        clock_file(directory, rank).unlink(missing_ok=True)
        append_clock(directory, rank, read(store.clock_ns))
        self._thread = threading.Thread(target=self._run, name="hocket-clock", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take the last reading; idempotent. A job that has lost its store keeps the readings that it has."""
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
        reading = read(self._store.clock_ns)
        self._writes(lambda: append_clock(self._directory, self._rank, reading))
