"""Endless hill climbing on ladders of settings, one step at a time, by costs that are noisy and change. Pure.

Each turn measures one setting. A neighbour is measured right after the setting that it is compared with, so that slow
drifts cancel. After a step that pays, the next step goes in the same direction. A step that does not pay is undone;
then the other direction is tried, then the next knob. When no step pays, the climber rests, twice as long after each
fruitless round, and tries again. A rest ends early when the cost of the setting itself changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

GAIN = 0.05
"""Relative saving that a step must bring: medians of a dozen steps repeat within a few percent."""

REST, REST_MAX = 4, 64
"""Turns that a place rests at first, and at most; in the end, one turn in thirty is spent on neighbours without a gain."""

MOVED = 0.25
"""Relative change of a resting place's cost that counts as a change of the network."""


class HillClimb:
    """One climber. `setting` is measured next; `note` takes its cost.

    >>> climb = HillClimb({"bytes": (1, 2, 4, 8)}, {"bytes": 1})
    >>> for _ in range(20):
    ...     climb.note(abs(4 - climb.setting["bytes"]) + 1)
    >>> climb.here
    {'bytes': 4}
    """

    def __init__(self, ladders: Mapping[str, Sequence[int]], start: Mapping[str, int]) -> None:
        """Begin at the values nearest to `start`. `ladders`: possible values of each knob, in order."""
        self._ladders = {knob: tuple(values) for knob, values in ladders.items()}
        self._at = {knob: _nearest(values, start[knob]) for knob, values in self._ladders.items()}
        self._directions = dict.fromkeys(self._ladders, 1)
        self._knobs = list(self._ladders)
        self._cost: float | None = None
        self._trial: dict[str, int] | None = None
        self._failed = 0
        self._resting = 0
        self._rest = REST
        self._rest_cost: float | None = None

    @property
    def here(self) -> dict[str, int]:
        """The best known setting."""
        return self._values(self._at)

    @property
    def setting(self) -> dict[str, int]:
        """The setting to be measured next: `here`, or a neighbour of it."""
        return self._values(self._at if self._trial is None else self._trial)

    def note(self, cost: float) -> None:
        """Note the cost of `setting`."""
        if self._trial is not None:
            self._judge(self._trial, cost)
        elif self._resting:
            self._stay(cost)
        else:
            self._cost = cost
            self._try()

    def _judge(self, trial: dict[str, int], cost: float) -> None:
        self._trial = None
        if self._cost is not None and cost < self._cost * (1 - GAIN):
            self._at, self._cost = trial, cost
            self._failed, self._rest = 0, REST
            self._try()
        else:
            self._turn_around()

    def _try(self) -> None:
        """Step the first knob that has not failed both ways; rest if there is none."""
        while self._failed < 2 * len(self._knobs):
            knob = self._knobs[0]
            index = self._at[knob] + self._directions[knob]
            if 0 <= index < len(self._ladders[knob]):
                self._trial = {**self._at, knob: index}
                return
            self._turn_around()
        self._resting, self._rest_cost = self._rest, self._cost
        self._rest = min(2 * self._rest, REST_MAX)

    def _turn_around(self) -> None:
        """Try the other direction of this knob; after both, the next knob."""
        self._failed += 1
        knob = self._knobs[0]
        self._directions[knob] = -self._directions[knob]
        if self._failed % 2 == 0:
            self._knobs.append(self._knobs.pop(0))

    def _stay(self, cost: float) -> None:
        self._resting -= 1
        before = self._rest_cost
        if before is not None and not 1 / (1 + MOVED) <= cost / before <= 1 + MOVED:
            self._resting, self._rest = 0, REST
        if not self._resting:
            self._failed = 0

    def _values(self, at: Mapping[str, int]) -> dict[str, int]:
        return {knob: self._ladders[knob][index] for knob, index in at.items()}


def _nearest(values: Sequence[int], start: int) -> int:
    return min(range(len(values)), key=lambda index: abs(values[index] - start))
