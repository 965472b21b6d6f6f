"""Record in the job's store of the members that have reached a collective: libraries cannot name missing ones.

Normal operation has no cost: a rank reports its presence when it makes a communicator, and after a long wait.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Sequence

from hocket.errors import PeerError, RendezvousError
from hocket.job.rendezvous import Job
from hocket.libraries.call import Call, place

ANNOUNCE_S = 1.0
"""Wait after which a rank reports its presence. A rank that gives up first allows the others as long again to report, so that no
rank is blamed for being the later of two waiting ones. All this ends well before the time-out of the step, whose message has no
names."""
LOOK_S = 0.02


class Presence:
    """Presence in one library's collectives of this process."""

    def __init__(self, job: Job, library: str) -> None:
        """Begin with no wait in progress."""
        self._job, self._library = job, library
        self._made: Counter[tuple[int, ...]] = Counter()
        self._timeout_s = job.settings.timeout_s
        self._announce_s = min(ANNOUNCE_S, self._timeout_s / 6)
        self._patience_s = self._timeout_s - 2 * self._announce_s

    def meet(self, call: Call) -> None:
        """Wait for the group before a communicator is created: libraries wait there without deadline or without names."""
        self._come(f"{call.group}")
        absent = self._absent(f"{call.group}", call.group, self._patience_s)
        if absent:
            raise self._timed_out(
                call,
                f"{_ranks(absent)} did not come to make its communicator within {self._patience_s:g} s\n"
                "hint: see what they do instead; HOCKET_TIMEOUT_S sets the limit",
                absent,
            )

    def wait(self, call: Call, complete: Callable[[float], bool]) -> None:
        """Wait until `complete` returns true, which waits for at most the seconds passed to it.

        Raises PeerError with the `missing` ranks.
        """
        self._made[call.group] += 1
        here = f"{call.group}/{self._made[call.group]}"
        if complete(self._announce_s):
            return
        with contextlib.suppress(RendezvousError):  # without a store, the collective may still succeed
            self._come(here)
        if complete(self._patience_s - self._announce_s):
            return
        absent: list[int] = []
        try:
            absent = self._absent(here, call.group, self._announce_s)
            whom = (
                f"{_ranks(absent)} did not come" if absent else "all of its group are there, and it is stuck"
            )
        except RendezvousError as error:
            whom = f"the missing ranks are unknown: {error}"
        raise self._timed_out(call, f"not complete after {self._patience_s:g} s; {whom}", absent)

    def _timed_out(self, call: Call, what: str, absent: Sequence[int]) -> PeerError:
        return PeerError(
            f"{place(self._job, self._library)}, {call}: {what}",
            rank=absent[0] if absent else None,
            host=self._job.hosts[absent[0]] if absent else None,
            why="timeout",
            missing=sorted(absent),
        )

    def _come(self, where: str) -> None:
        self._job.store.add(self._key(where, self._job.rank))

    def _absent(self, where: str, group: Sequence[int], within_s: float) -> list[int]:
        """Poll for absent members instead of waiting in the store, whose single connection others need in the meantime."""
        deadline_s = time.monotonic() + within_s
        absent = list(group)
        while True:
            while absent and self._job.store.add(self._key(where, absent[0]), 0):
                del absent[0]
            if not absent:
                return []
            if time.monotonic() > deadline_s:
                return [rank for rank in absent if not self._job.store.add(self._key(where, rank), 0)]
            time.sleep(LOOK_S)

    def _key(self, where: str, rank: int) -> str:
        return f"library/{self._library}/{where}/{rank}"


def _ranks(ranks: Sequence[int]) -> str:
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"
