"""`monitored_barrier`: a barrier whose rank 0 learns which ranks are missing.

The barrier uses only torch's store, so that it also works when ranks cannot reach each other. Its messages contain Gloo's
phrases, since programs look for them.
"""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

GRACE_S = 1.0
"""Seconds for which other ranks wait for rank 0's verdict after its time-out."""


class MonitoredBarrier:
    """Barriers of one group; every rank calls `meet` equally often."""

    def __init__(self, store: Any, *, rank: int, world: int, place: str) -> None:
        """Prepare the first call. `store`: store of the group. `place`: rank and host, for messages."""
        self._store, self._rank, self._world, self._place = store, rank, world, place
        self._calls = 0

    def meet(self, timeout: timedelta, *, wait_all_ranks: bool) -> None:
        """Raise RuntimeError when a rank does not arrive in time.

        Rank 0 names the first missing rank, or all with `wait_all_ranks`; the others repeat rank 0's message.
        """
        self._calls += 1
        verdict = self._watch(timeout, wait_all_ranks) if self._rank == 0 else self._hear(timeout)
        if verdict:
            raise RuntimeError(f"{self._place}: {verdict}\nhint: see what they do instead")

    def _watch(self, timeout: timedelta, wait_all_ranks: bool) -> str:
        deadline_s = time.monotonic() + timeout.total_seconds()
        absent: list[str] = []
        for rank in range(1, self._world):
            if not self._comes(self._key(str(rank)), deadline_s - time.monotonic()):
                absent.append(str(rank))
                if not wait_all_ranks:
                    break
        verdict = ""
        if absent:
            named = f"Rank{'s' if len(absent) > 1 else ''} {', '.join(absent)}"
            verdict = f"{named} failed to pass monitoredBarrier in {timeout / timedelta(milliseconds=1):g} ms"
        elif self._calls > 1:
            # All ranks have arrived here, so they have left the previous barrier.
            for name in ("verdict", *map(str, range(1, self._world))):
                self._store.delete_key(self._key(name, self._calls - 1))
        self._store.set(self._key("verdict"), verdict)
        return verdict

    def _hear(self, timeout: timedelta) -> str:
        self._store.set(self._key(str(self._rank)), "")
        known = self._comes(self._key("verdict"), timeout.total_seconds() + GRACE_S)
        verdict = self._store.get(self._key("verdict")).decode() if known else "it did not come"
        if not verdict:
            return ""
        return (
            f"Rank {self._rank} successfully reached monitoredBarrier, but received errors while waiting for "
            f"send/recv from rank 0: {verdict}"
        )

    def _comes(self, key: str, within_s: float) -> bool:
        if within_s > 0:
            try:
                self._store.wait([key], timedelta(seconds=within_s))
            except RuntimeError:  # it timed out; torch's stores have no error of their own for that
                return bool(self._store.check([key]))
            return True
        return bool(self._store.check([key]))

    def _key(self, name: str, call: int | None = None) -> str:
        return f"hocket/monitored/{self._calls if call is None else call}/{name}"
