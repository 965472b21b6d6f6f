"""A member's reports of its training, for people: when it goes on after a change, and, from the first member, what stands.

Each member notes what stands with each step, and when; only the first one of the epoch sends it, once a second at most. When
members change, the new first one sends its last step before that, so no work is missing when the one before it has died.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from hocket.members.account import Point
from hocket.members.member_messages import Committed, FromMember, Resumed

REPORT_S = 1.0
"""Time between two reports while nothing changes."""


class Progress:
    """Reports of one member. The script's thread notes its steps without the lock."""

    def __init__(
        self,
        lock: AbstractContextManager[object],
        tell: Callable[[FromMember], None],
        first: Callable[[], bool],
    ) -> None:
        """Begin outside of any generation. `first`: whether this member is the first one of its epoch."""
        self._lock, self._tell, self._first = lock, tell, first
        self._generation = self._shares = self._steps = 0
        self._samples = self._samples_before = 0
        """Samples that this process has counted, also before this generation met."""
        self._last: Point | None = None
        self._unsaid_from_s = 0.0
        """Time of the next report while nothing changes; 0: the next step is reported."""
        self._stopped_s: float | None = None

    def begin(self, generation: int, steps: int) -> None:
        """Begin in a generation, after so many steps of the job. The last step of the one before is still to be reported."""
        self._generation, self._shares, self._steps = generation, 0, steps
        self._samples_before = self._samples

    def stop(self) -> None:
        """Note that training stands still, if it does not already."""
        self._stopped_s = self._stopped_s or time.monotonic()

    def stepped(self, steps: int, *, ranks: int, samples: int) -> None:
        """Note that so many steps of the job stand, those since the last call as means of so many ranks: several where ranks step
        alone in between. `samples`: all that this process has counted in steps since it began."""
        now_s = time.monotonic()
        self._shares += ranks * (steps - self._steps)
        self._steps = steps
        self._samples = samples
        self._last = Point(
            at_s=now_s,
            generation=self._generation,
            steps=steps,
            shares=self._shares,
            samples=samples - self._samples_before,
        )
        if now_s >= self._unsaid_from_s:
            with self._lock:
                self.report()

    def report(self, *, ends: bool = False) -> None:
        """Send what stands since the last step, if this is the first member, or its script `ends`. The caller holds the lock."""
        last, now_s = self._last, time.monotonic()
        if last is None or not (ends or self._first()):
            return
        self._unsaid_from_s = now_s + REPORT_S
        self._tell(
            Committed(
                generation=last.generation,
                steps=last.steps,
                shares=last.shares,
                samples=last.samples,
                age_s=now_s - last.at_s,
            )
        )

    def resumed(self, epoch: int, *, again: bool, steps: int) -> None:
        """Report that training goes on in an epoch, after so many steps of the job. `again`: a step is reduced anew. The caller
        holds the lock."""
        took_s = 0.0 if self._stopped_s is None else time.monotonic() - self._stopped_s
        self._stopped_s = None
        self.report()
        self._tell(Resumed(epoch=epoch, took_s=took_s, again=again, steps=steps))
        self._unsaid_from_s = 0.0
