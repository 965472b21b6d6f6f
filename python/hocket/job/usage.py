"""Looks at what this process takes of its machine, written to the trace while a job runs; and the versions of what it runs on."""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from pathlib import Path

from hocket import __version__
from hocket.artefacts.usage import Usage, append_usage, usage_file
from hocket.job.trace_writes import TraceLog, TraceWrites

LEAST_S, MOST_S = 1.0, 10.0
APART = 1e-3
"""The next look comes after so large a part of the run so far, within these bounds: a week has 66,000 looks, of 100 bytes."""
PAGE_BYTES = resource.getpagesize()
KIB = 1024
PACKAGES = ("torch", "jax", "tensorflow", "keras", "numpy")


class UsageLog(TraceLog):
    """Log of one process, at once, again and again, and on closing; each look is written to the trace immediately."""

    def __init__(self, directory: Path, rank: int) -> None:
        """Begin. A file that cannot be written costs the rest of it, and is logged."""
        writes, began_s = TraceWrites("memory and processor use"), time.monotonic()

        def at_s() -> float:
            return time.monotonic() - began_s

        def look() -> None:
            looked = now(at_s())
            writes(lambda: append_usage(directory, rank, looked))

        writes(lambda: usage_file(directory, rank).unlink(missing_ok=True))
        look()
        super().__init__(look, lambda: interval_s(at_s()), name="hocket-usage")


def interval_s(at_s: float) -> float:
    """Return the time until the next look after one at `at_s`.

    >>> interval_s(5.0), interval_s(4000.0), interval_s(1e6)
    (1.0, 4.0, 10.0)
    """
    return min(MOST_S, max(LEAST_S, APART * at_s))


def now(at_s: float) -> Usage:
    """Return a look at this process."""
    took = resource.getrusage(resource.RUSAGE_SELF)
    resident_bytes = int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_BYTES
    return Usage(
        at_s=round(at_s, 3),
        resident_bytes=resident_bytes,
        most_bytes=max(resident_bytes, took.ru_maxrss * KIB),
        processor_s=round(took.ru_utime + took.ru_stime, 3),
        cores=len(os.sched_getaffinity(0)),
    )


def versions() -> dict[str, str]:
    """Return the versions of what this process runs on, by name; of packages, those that it has loaded."""
    found = {"Hocket": __version__, "Python": platform.python_version()}
    for name in PACKAGES:
        number = getattr(sys.modules.get(name), "__version__", None)
        if number is not None:
            found[name] = str(number)
    found[platform.system()] = f"{platform.release()} {platform.machine()}"
    return found
