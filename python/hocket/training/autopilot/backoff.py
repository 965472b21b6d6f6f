"""Backoff of the pilot: what brought nothing is tried again later, and later still each time."""

from __future__ import annotations

from hocket.training.autopilot.caution import Caution


class Backoff:
    """Rests between questions to the planner, and refusals of plans, in numbers of steps."""

    def __init__(self, caution: Caution) -> None:
        """Begin without a rest. `caution`: how long the first one takes."""
        self._caution = caution
        self._since = self._steps = 0
        self._next_steps = caution.rest
        self._refused: dict[str, tuple[int, int]] = {}

    def rest(self, step: int) -> None:
        """Begin a rest: the planner found nothing."""
        self._since, self._steps = step, self._next_steps
        self._next_steps = min(2 * self._next_steps, self._caution.rest_max)

    def resting(self, step: int, ratio: float) -> bool:
        """Return whether it is too soon for another question, where steps take `ratio` of what they took; after a change that
        nobody would overlook, an eighth as long."""
        waited = step - self._since
        if 1 / self._caution.doubt <= ratio <= self._caution.doubt:
            return waited < self._steps
        return waited < max(self._steps // 8, self._caution.rest)

    def found(self) -> None:
        """End the rest: a plan has proved itself."""
        self._next_steps, self._steps = self._caution.rest, 0

    def refuse(self, key: str, step: int) -> None:
        """Refuse a plan for a while."""
        _, times = self._refused.get(key, (0, 0))
        self._refused[key] = step + (self._caution.rest << (times + 4)), times + 1

    def refuses(self, key: str, step: int) -> bool:
        """Return whether the plan is refused."""
        until, _ = self._refused.get(key, (0, 0))
        return step < until

    def forget(self) -> None:
        """Forget refusals, and how long the next rest is to be: they were made on another network."""
        self._refused.clear()
        self._next_steps = self._caution.rest
