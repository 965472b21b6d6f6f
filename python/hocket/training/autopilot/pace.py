"""Times of a plan's iterations if these differ from one another: with merged gradients, only iterations with an update wait.

So an iteration counts as the mean of a period that ends with it; if the period is longer than SPAN_MAX, as the mean of SPAN_MAX
iterations, as turns are spread evenly. When an epoch begins, links are idle: its iterations until the first update is due, and as
many more, do not count. Where ranks step alone, one iteration of a period waits for its exchange, so that whole periods count, all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import fmean

from hocket.artefacts.plan import Schedule

SPAN_MAX = 12


class Pace:
    """Pace of one job. Iterations of plans without turns are left as they are."""

    def __init__(self) -> None:
        self._epoch: int | None = None
        self._schedule = Schedule()
        self._idle = 0
        self._latest: deque[float] = deque()

    def of(self, epoch: int, schedule: Schedule, times_s: Iterable[float]) -> tuple[float, ...]:
        """Return the times of an epoch's iterations, which follow on those of the call before. `schedule`: that of its plan.

        >>> from hocket.artefacts.plan import Due, Turn
        >>> turns = (Turn(first=0, last=1, due=Due(iteration=1)),)
        >>> Pace().of(1, Schedule(period=2, turns=(turns,)), [9.0, 9.0, 1.0, 3.0, 1.0])
        (2.0, 2.0)
        """
        if not schedule.turns:
            self._epoch = None
            return tuple(times_s)
        if (epoch, schedule) != (self._epoch, self._schedule):
            self._epoch, self._schedule = epoch, schedule
            alone = schedule.outer is not None
            span = schedule.period if alone else min(schedule.period, SPAN_MAX)
            self._idle = schedule.delay_max if alone else span + schedule.delay_max
            self._latest = deque(maxlen=span)
        found = []
        for time_s in times_s:
            if self._idle:
                self._idle -= 1
                continue
            self._latest.append(time_s)
            if len(self._latest) == self._latest.maxlen:
                found.append(fmean(self._latest))
        return tuple(found)
