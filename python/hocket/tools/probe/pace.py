"""Limit on a probe's share of its link: before sending, senders wait here for what they sent before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

OVERHEAD_BYTES = 66
"""Bytes of a datagram on an Ethernet link beyond its payload: UDP 8, IPv4 20, Ethernet 18, preamble and gap 20."""


class Pace:
    """Limit of `bit_per_s` on average since any moment, beyond what is sent at once.

    >>> at = [0.0]
    >>> pace = Pace(8000.0, clock=lambda: at[0], sleep=lambda wait_s: at.__setitem__(0, at[0] + wait_s))
    >>> for _ in range(3):
    ...     pace.spend(1000)
    >>> at[0]
    2.0
    """

    def __init__(
        self,
        bit_per_s: float,
        *,
        clock: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._s_per_byte = 8 / bit_per_s
        self._clock, self._sleep = clock, sleep
        self._free_at = clock()
        self._lock = threading.Lock()

    def spend(self, count: int) -> None:
        """Wait until earlier bytes are paid for; then `count` bytes may be sent at once."""
        with self._lock:
            now = self._clock()
            begins = max(self._free_at, now)
            self._free_at = begins + count * self._s_per_byte
        if begins > now:
            self._sleep(begins - now)

    def wait_s(self, count: int) -> float:
        """Time of this many bytes at this pace."""
        return count * self._s_per_byte


def on_the_wire(payload_bytes: int, packets: int = 1) -> int:
    """Bytes on a link of datagrams with this much payload.

    >>> on_the_wire(1400)
    1466
    """
    return payload_bytes + packets * OVERHEAD_BYTES
