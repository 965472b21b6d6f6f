"""Offset of this host's monotonic clock from the job's, measured like NTP (RFC 5905, section 8) during a run.

The job's clock is the store's. `artefacts/clock.py` defines the meaning of readings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from hocket.artefacts.clock import Reading
from hocket.artefacts.trace import append_clock, clock_file
from hocket.errors import RendezvousError
from hocket.job.store.store import Store
from hocket.job.trace_writes import TraceLog, TraceWrites

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


class ClockLog(TraceLog):
    """Log of the clock, read at once, every INTERVAL_S, and on closing; each reading is written to the trace immediately.

    A job that has lost its store keeps the readings that it has.
    """

    def __init__(self, store: Store, directory: Path, rank: int) -> None:
        """Start reading. RendezvousError: the store does not answer. ArtefactError: the reading cannot be written."""
        writes = TraceWrites("readings of the clock")

        def look() -> None:
            reading = read(store.clock_ns)
            writes(lambda: append_clock(directory, rank, reading))

        clock_file(directory, rank).unlink(missing_ok=True)
        append_clock(directory, rank, read(store.clock_ns))
        super().__init__(look, lambda: INTERVAL_S, name="hocket-clock", ends=(RendezvousError,))
