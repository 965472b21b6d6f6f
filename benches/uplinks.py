"""Bytes over the uplinks of emulated racks, counted beside a job by the devices of the testbed."""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager

from hocket.errors import Error
from hocket.tools.demo.emulation import Emulation

EVERY_S = 0.05


class Uplinks:
    """Samples of what all racks together have sent, with headers and acknowledgements."""

    def __init__(self) -> None:
        """Begin with none."""
        self._times_s: list[float] = []
        self._bytes: list[int] = []
        self._ended = threading.Event()

    @contextmanager
    def watched(self, emulation: Emulation) -> Iterator[None]:
        """Sample until the context ends."""
        thread = threading.Thread(target=self._watch, args=(emulation,))
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()

    def add(self, at_s: float, count: int) -> None:
        """Note what was sent until this time of the machine's clock."""
        self._times_s.append(at_s)
        self._bytes.append(count)

    def sent(self, began_s: float, ended_s: float) -> float:
        """Return the bytes between these times. Error: the samples do not reach so far."""
        return self._until(ended_s) - self._until(began_s)

    def _watch(self, emulation: Emulation) -> None:
        while not self._ended.wait(EVERY_S):
            if (count := emulation.trunk_bytes()) is not None:
                self.add(time.monotonic(), count)

    def _until(self, at_s: float) -> float:
        after = bisect_right(self._times_s, at_s)
        if not 0 < after < len(self._times_s):
            raise Error("uplinks: there are no samples before and after this time")
        (early_s, early), (late_s, late) = ((self._times_s[at], self._bytes[at]) for at in (after - 1, after))
        return early + (late - early) * (at_s - early_s) / (late_s - early_s)
