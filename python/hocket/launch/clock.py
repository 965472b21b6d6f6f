"""How far this host's monotonic clock is from another's, as NTP finds it (RFC 5905, section 8)."""

from __future__ import annotations

import time
from typing import NamedTuple

from hocket.launch.store import Store

PINGS = 10


class Offset(NamedTuple):
    """What to add to the clock here to get the clock there, and the bound of its error, nanoseconds."""

    ns: int
    error_ns: int


def offset_to_store(store: Store) -> Offset:
    """From the fastest of PINGS round trips: queues only add time, half the trip bounds what they hide."""
    return min((_ping(store) for _ in range(PINGS)), key=lambda offset: offset.error_ns)


def _ping(store: Store) -> Offset:
    asked_ns = time.monotonic_ns()
    there_ns = store.clock_ns()
    answered_ns = time.monotonic_ns()
    return Offset(there_ns - (asked_ns + answered_ns) // 2, (answered_ns - asked_ns + 1) // 2)
