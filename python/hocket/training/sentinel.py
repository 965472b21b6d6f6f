"""Whether training still goes as it did while it was synchronous: a band around a value, and a sum of what is above it.

A cumulative sum (Page 1954) of how far the logarithm of a value lies above its band, in deviations of the synchronous window. One
odd value does not count for much, many in a row do, and a value that is not finite ends it at once. The band's centre follows the
value, since losses fall and norms grow in training that goes well; what grows faster than it follows adds up. No clock, no I/O.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from hocket.errors import UsageError

SLACK = 1.0
"""Deviations above the centre that are usual."""

ALARM = 12.0
"""The sum of deviations above the slack at which it alarms. Normal noise of a known deviation comes there once in e^24 values."""

CLIPPED = 4.0
"""What one value can add at most, so that a single outlier never alarms."""

SPREAD_MIN = 0.05
"""Of the logarithm: what seems steadier is taken to vary so much."""

FOLLOWED = 0.05
"""Share of the difference by which the centre follows: something that grows by a few deviations in 20 values is not followed."""

WINDOW_MIN = 10
"""Values of the synchronous window at least."""


class Alarm(NamedTuple):
    """The value that set it off, the centre of the band then, and how often it was updated since the synchronous window."""

    name: str
    value: float
    centre: float
    updates: int

    def __str__(self) -> str:
        """A sentence with the numbers."""
        return (
            f"{self.name} of {self.value:.4g} after {self.updates} updates, against {self.centre:.4g} before"
        )


class Watch:
    """The sentinel of one training: it learns a band from synchronous updates, and looks at those that are merged or late.

    Attributes:
        learns: synchronous updates are still to be seen.
        alarm: what was seen; nothing is watched after it.
    """

    def __init__(self, name: str) -> None:
        """`name`: what is watched, for people."""
        self.alarm: Alarm | None = None
        self._name = name
        self._synchronous: list[float] = []
        self._sentinel: Sentinel | None = None

    @property
    def learns(self) -> bool:
        """As above."""
        return self._sentinel is None

    def see(self, value: float) -> None:
        """The next update's value."""
        if self.alarm is not None:
            return
        if self._sentinel is not None:
            self.alarm = self._sentinel.see(value)
        elif 0 < value < math.inf:
            # An update by nothing, or by no number, says nothing about the band.
            self._synchronous.append(value)
            if len(self._synchronous) == WINDOW_MIN:
                self._sentinel = Sentinel(self._name, self._synchronous)


class Sentinel:
    """Watches one positive value, such as the norm of applied gradients, or the loss.

    Args:
        name: what is watched, for people.
        synchronous: its values from the synchronous window, at least 10, finite.

    Raises UsageError for fewer values, or for some that are not positive and finite.
    """

    def __init__(self, name: str, synchronous: Sequence[float]) -> None:
        """Learns the band."""
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
        self._sum = 0.0
        self._updates = 0

    def see(self, value: float) -> Alarm | None:
        """The next value; an alarm when training no longer goes as before."""
        self._updates += 1
        centre = math.exp(self._centre)
        if not math.isfinite(value):
            return Alarm(self._name, value, centre, self._updates)
        log = math.log(max(value, 1e-300))
        above = (log - self._centre) / self._spread
        self._sum = max(0.0, self._sum + min(above, CLIPPED) - SLACK)
        self._centre += FOLLOWED * self._spread * min(above, CLIPPED)
        if self._sum > ALARM:
            return Alarm(self._name, value, centre, self._updates)
        return None
