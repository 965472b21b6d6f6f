"""Processes that the launcher of an elastic job starts in the place of lost ranks. They join the job as any other does.

In each place, the next process waits twice as long as the one before: a replacement does not help against a fault that ends all of
them at once. A process that has trained for a while has shown that its place is good, and is replaced soon.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from hocket.errors import RendezvousError
from hocket.members.coordination import Coordination
from hocket.start.processes import Process

WAIT_S, WAIT_MAX_S = 1.0, 60.0
"""Times from a loss until another process starts: at first, and at most."""
STEADY_S = 60.0
"""Training time after which a process is replaced after WAIT_S again."""

log = logging.getLogger("hocket.run")

Start = Callable[[int, Process], Process]
"""Function that starts a process as the member of that number, where the other one ran. RendezvousError: that fails."""


@dataclass(kw_only=True, eq=False)
class _Place:
    """Place of a rank; `process` is the newest one there.

    Attributes:
        wait_s: wait before that process started.
        successor: number of the next process, which is to start at `due_s`.
        told: True once the log says that there is no room for the next one.
    """

    process: Process
    wait_s: float = 0.0
    successor: int | None = None
    due_s: float = 0.0
    told: bool = False


class Replacements:
    """Replacements: at most `most` in all, in any place. Their numbers follow those of the founders."""

    def __init__(self, coordination: Coordination, founders: int, most: int, start: Start) -> None:
        self._coordination = coordination
        self._founders, self._most = founders, most
        self._numbers = iter(numbers(founders, most))
        self._start = start
        self._places: dict[int, _Place] = {}
        """Places by the numbers of all processes that have had them."""
        self._train_since_s: dict[int, float] = {}
        self._made_up_for: set[int] = set()

    def lost(self, process: Process) -> None:
        """Plan a replacement for a process that has ended with a failure, if the job may have one."""
        if self._most == 0 or not self._coordination.roster.misses(process.rank):
            return
        place = self._places.setdefault(process.rank, _Place(process=process))
        now_s = time.monotonic()
        steady = now_s - self._train_since_s.get(process.rank, now_s) >= STEADY_S
        place.wait_s = WAIT_S if steady else min(max(WAIT_S, 2 * place.wait_s), WAIT_MAX_S)
        self._plan(place, now_s)

    def started(self) -> Iterator[Process]:
        """Start the processes that are due, if the job has room for them."""
        now_s = time.monotonic()
        self._look(now_s)
        waiting = sum(self.waits(place.process) for place in set(self._places.values()))
        room = self._coordination.roster.room - waiting
        due = {
            place for place in self._places.values() if place.successor is not None and place.due_s <= now_s
        }
        for place in sorted(due, key=lambda each: (each.due_s, each.successor)):
            if not self._coordination.roster.misses(place.process.rank):
                place.successor = None
                continue
            if room <= 0:
                self._tell_of_no_room(place)
                continue
            try:
                process = self._begin(place)
            except RendezvousError as error:
                log.warning("%s", error)
                place.wait_s = min(2 * place.wait_s, WAIT_MAX_S)
                self._plan(place, now_s)
            else:
                room -= 1
                yield process

    def waits(self, process: Process) -> bool:
        """Return whether the process runs in the place of another one, and has never trained."""
        return process.code is None and self.is_new(process)

    def is_new(self, process: Process) -> bool:
        """Return whether the process was started in the place of another one, and has never trained."""
        return process.rank >= self._founders and process.rank not in self._train_since_s

    def made_up_for(self, process: Process) -> bool:
        """Return whether another process has trained in its place since."""
        return process.rank in self._made_up_for

    def _look(self, now_s: float) -> None:
        """Note the processes that train now and did not before."""
        for number, place in self._places.items():
            newest = place.process
            if number == newest.rank and self.waits(newest) and self._coordination.roster.has(number):
                self._train_since_s[number] = now_s
                self._made_up_for.update(
                    before for before, each in self._places.items() if each is place and before != number
                )

    def _plan(self, place: _Place, now_s: float) -> None:
        who = f"rank {place.process.rank} on {place.process.host}"
        place.successor, place.due_s, place.told = next(self._numbers, None), now_s + place.wait_s, False
        if place.successor is None:
            log.warning(
                "%s is not replaced: all %d processes of `respawn` have been started", who, self._most
            )
            return
        count = place.successor - self._founders + 1
        log.warning(
            "%s is replaced in %g s by rank %d: process %d of respawn=%d",
            who,
            place.wait_s,
            place.successor,
            count,
            self._most,
        )

    def _begin(self, place: _Place) -> Process:
        assert place.successor is not None  # noqa: S101  # it is due
        number, place.successor = place.successor, None
        place.process = self._start(number, place.process)
        self._places[number] = place
        return place.process

    @staticmethod
    def _tell_of_no_room(place: _Place) -> None:
        if not place.told:
            place.told = True
            log.warning("rank %s does not start yet: the job has as many ranks as it may", place.successor)


def numbers(founders: int, most: int) -> range:
    """Return the numbers of `most` members that are started in the place of others."""
    return range(founders, founders + most)
