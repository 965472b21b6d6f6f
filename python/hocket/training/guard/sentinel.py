"""Test that training still goes as it did while it was synchronous: a band around a value, and a sum of what is above the band.

A cumulative sum (Page 1954) of how far the logarithm of a value lies above its band, in deviations of the synchronous window. One
odd value does not count for much, many in a row do, and a value that is not finite ends it at once. The band's centre follows the
value, since losses fall and norms grow in training that goes well; growth that is faster than the centre adds up. A deviation
follows, too, by differences of neighbours: what a model has learned well has a small loss with larger relative noise. No clock, no
I/O.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from hocket.errors import UsageError

SLACK = 1.0
"""Number of deviations above the centre that are usual."""

ALARM = 12.0
"""Sum of deviations above the slack at which it alarms. Normal noise of a known deviation reaches it once in e^24 values."""

CLIPPED = 4.0
"""Largest contribution of one value, so that a single outlier never alarms."""

SPREAD_MIN = 0.05
"""Least spread of the logarithm, also assumed for values that seem steadier."""

SPREAD_GROWING = math.log(2)
"""Least spread where own gradients go first, or nothing is late: as in synchronous training, norms grow by a factor of some in the
first iterations, and only growth without end is a sign."""

FOLLOWED = 0.05
"""Share of the difference by which centre and deviation follow: a growth by a few deviations in 20 values is not followed."""

WINDOW_MIN = 10
"""Least number of values of the synchronous window."""


SETTLING = 10
"""Values after a retreat that only move the band: with a momentum of 0.9, moves that were too large go on for so long."""


class Alarm(NamedTuple):
    """Value that set the alarm off, centre of the band then, and number of updates since the synchronous window."""

    name: str
    value: float
    centre: float
    updates: int

    def __str__(self) -> str:
        return (
            f"{self.name} of {self.value:.4g} after {self.updates} updates, against {self.centre:.4g} before"
        )


Band = tuple[float, float, float, float, int, int]
"""Centre, spread and last value of a sentinel, of logarithms, the sum above, the number of values it has seen and of those it still
follows."""


class SavedWatch(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State of a `Watch` between two updates; `band`: that of its sentinel, once it has one."""

    synchronous: tuple[float, ...]
    band: Band | None = None
    alarm: tuple[str, float, float, int] | None = None


class Watch:
    """Sentinel of one training: it learns a band from synchronous updates, and looks at those that are merged or late.

    Attributes:
        learns: synchronous updates are still to be seen.
        alarm: the alarm, after which nothing is watched.
    """

    def __init__(self, name: str) -> None:
        """Begin to learn. `name`: that of the watched value, for people."""
        self.alarm: Alarm | None = None
        self._name = name
        self._synchronous: list[float] = []
        self._sentinel: Sentinel | None = None

    @property
    def learns(self) -> bool:
        return self._sentinel is None

    def again(self) -> None:
        """Watch on when updates change: a value that grows further alarms again."""
        self.alarm = None
        if self._sentinel is not None:
            self._sentinel.again()

    def assume(self, spread: float) -> None:
        """Assume at least that spread from now on."""
        if self._sentinel is not None:
            self._sentinel.spread_min = spread

    def saved(self) -> SavedWatch:
        """Return the synchronous values, the band and the alarm so far."""
        band = None if self._sentinel is None else self._sentinel.band
        seen = self.alarm
        alarm = None if seen is None else (seen.name, seen.value, seen.centre, seen.updates)
        return SavedWatch(synchronous=tuple(self._synchronous), band=band, alarm=alarm)

    def restore(self, saved: SavedWatch) -> None:
        self._synchronous = list(saved.synchronous)
        self.alarm = None if saved.alarm is None else Alarm(*saved.alarm)
        self._sentinel = None
        if saved.band is not None:
            self._sentinel = Sentinel(self._name, self._synchronous)
            self._sentinel.band = saved.band

    def see(self, value: float) -> None:
        """Take the next update's value. A value that is not positive says nothing."""
        if self.alarm is not None:
            return
        if value <= 0:
            return
        if self._sentinel is not None:
            self.alarm = self._sentinel.see(value)
        elif value < math.inf:
            # An infinite or NaN update says nothing about the band.
            self._synchronous.append(value)
            if len(self._synchronous) == WINDOW_MIN:
                self._sentinel = Sentinel(self._name, self._synchronous)


class Sentinel:
    """Sentinel of one positive value, such as the norm of applied gradients, or the loss. `spread_min`: least spread it assumes.

    Args:
        name: that of the watched value, for people.
        synchronous: its values from the synchronous window, at least 10, finite.

    Raises UsageError for fewer values, or for some that are not positive and finite.
    """

    def __init__(self, name: str, synchronous: Sequence[float]) -> None:
        if len(synchronous) < WINDOW_MIN or not all(0 < value < math.inf for value in synchronous):
            raise UsageError(
                f"sentinel: {name} has {len(synchronous)} values: at least {WINDOW_MIN}, positive and finite"
            )
        logs = [math.log(value) for value in synchronous]
        self._name = name
        self._centre = sum(logs) / len(logs)
        # Differences of neighbours, so that a falling loss does not count as noise (von Neumann 1941).
        steps = [(after - before) ** 2 for before, after in itertools.pairwise(logs)]
        self._spread = max(math.sqrt(sum(steps) / len(steps) / 2), SPREAD_MIN)
        self.spread_min = SPREAD_MIN
        self._last = logs[-1]
        self._sum = 0.0
        self._updates = 0
        self._settles = 0

    def again(self) -> None:
        """Let the band follow the next values, and then stay around the last of them."""
        self._sum, self._updates, self._settles = 0.0, 0, SETTLING

    @property
    def band(self) -> Band:
        return self._centre, self._spread, self._last, self._sum, self._updates, self._settles

    @band.setter
    def band(self, band: Band) -> None:
        self._centre, self._spread, self._last, self._sum, self._updates, self._settles = band

    def see(self, value: float) -> Alarm | None:
        """Take the next value; return an alarm when training no longer goes as before."""
        self._updates += 1
        centre = math.exp(self._centre)
        if not math.isfinite(value):
            return Alarm(self._name, value, centre, self._updates)
        log = math.log(max(value, 1e-300))
        since, self._last = log - self._last, log
        if self._settles:
            self._settles -= 1
            self._centre = log
            return None
        spread = max(self._spread, self.spread_min)
        step = min(abs(since), CLIPPED * spread)
        self._spread = math.sqrt(self._spread**2 + FOLLOWED * (step**2 / 2 - self._spread**2))
        above = (log - self._centre) / spread
        self._sum = max(0.0, self._sum + min(above, CLIPPED) - SLACK)
        self._centre += FOLLOWED * spread * min(above, CLIPPED)
        if self._sum > ALARM:
            return Alarm(self._name, value, centre, self._updates)
        return None
