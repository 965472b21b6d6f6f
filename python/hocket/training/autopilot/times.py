"""Times of the latest steps under one plan. All are medians, because a step now and then takes much longer for reasons
of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from statistics import median

LATEST = 3
"""Number of latest steps whose median is the present step time."""


class StepTimes:
    """Step times in seconds, as far as they were seen. `window`: number of steps of which the median counts."""

    def __init__(self, window: int) -> None:
        self._window = window
        self.all_s: deque[float] = deque(maxlen=2 * window)
        """Times under the plan in force, oldest first."""
        self._last_s: float | None = None

    def add(self, step_s: Sequence[float]) -> None:
        """Add the times of steps that ended."""
        self.all_s.extend(step_s)
        if step_s:
            self._last_s = step_s[-1]

    def begin(self, step_s: Sequence[float] = ()) -> None:
        """Begin anew, with these times."""
        self.all_s.clear()
        self.all_s.extend(step_s)

    @property
    def window_s(self) -> list[float]:
        """Times that count."""
        return list(self.all_s)[-self._window :]

    @property
    def median_s(self) -> float:
        """Step time of the plan in force."""
        return median(self.window_s)

    @property
    def known_s(self) -> float | None:
        """Step time of the plan in force, as far as it was seen; else time of the last step."""
        return self.median_s if self.all_s else self._last_s

    @property
    def latest_s(self) -> float:
        """Median time of the last steps that were seen."""
        return median(list(self.all_s)[-LATEST:])
