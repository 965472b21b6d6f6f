"""Statistics in handlers: numbers whose comparisons are remembered, so that a decision that would fall otherwise is noticed.

A comparison becomes a guard: what was compared, how, and how it fell. When a guard would fall the other way with newer
statistics, the policy is traced again in the next epoch. A number that is used in any other way is guarded by its value.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from hocket.errors import PolicyError

Snapshot = Sequence[Mapping[str, Sequence[float]]]
"""By rank: the latest values of each statistic, oldest first."""

Source = Callable[[Snapshot], float]


@dataclass(frozen=True)
class Guard:
    """What a trace took for granted."""

    where: str
    holds: Callable[[Snapshot], bool]


class Observed(float):
    """A statistic as a handler sees it."""

    _source: Source
    _guards: list[Guard]
    _where: str

    @classmethod
    def of(cls, source: Source, snapshot: Snapshot, guards: list[Guard], where: str) -> Observed:
        """The number now; `guards` takes what is decided by it."""
        made = cls(source(snapshot))
        made._source, made._guards, made._where = source, guards, where
        return made

    @property
    def source(self) -> Source:
        """How it follows from statistics."""
        return self._source

    def _compare(self, other: object, compare: Callable[[float, float], bool]) -> bool:
        if not isinstance(other, int | float):
            return NotImplemented  # type: ignore[no-any-return]
        source, constant = self._source, float(other)
        theirs: Source = other._source if isinstance(other, Observed) else lambda _snapshot: constant
        outcome = compare(float(self), float(other))
        self._guards.append(
            Guard(self._where, lambda snapshot: compare(source(snapshot), theirs(snapshot)) == outcome)
        )
        return outcome

    def __lt__(self, other: object) -> bool:
        """Guarded."""
        return self._compare(other, operator.lt)

    def __le__(self, other: object) -> bool:
        """Guarded."""
        return self._compare(other, operator.le)

    def __gt__(self, other: object) -> bool:
        """Guarded."""
        return self._compare(other, operator.gt)

    def __ge__(self, other: object) -> bool:
        """Guarded."""
        return self._compare(other, operator.ge)

    def __eq__(self, other: object) -> bool:
        """Guarded."""
        return self._compare(other, operator.eq)

    def __ne__(self, other: object) -> bool:
        """Guarded."""
        return self._compare(other, operator.ne)

    __hash__ = float.__hash__

    def __bool__(self) -> bool:
        """Guarded: whether it is zero."""
        return self._compare(0, operator.ne)

    def _derived(self, other: object, combine: Callable[[float, float], float]) -> Observed:
        if not isinstance(other, int | float):
            return NotImplemented  # type: ignore[no-any-return]
        ours, constant = self._source, float(other)
        theirs: Source = other._source if isinstance(other, Observed) else lambda _snapshot: constant
        made = Observed(combine(float(self), float(other)))
        made._source = lambda snapshot: combine(ours(snapshot), theirs(snapshot))
        made._guards, made._where = self._guards, self._where
        return made

    def __add__(self, other: object) -> Observed:
        """Still observed."""
        return self._derived(other, operator.add)

    def __sub__(self, other: object) -> Observed:
        """Still observed."""
        return self._derived(other, operator.sub)

    def __mul__(self, other: object) -> Observed:
        """Still observed."""
        return self._derived(other, operator.mul)

    def __truediv__(self, other: object) -> Observed:
        """Still observed."""
        return self._derived(other, operator.truediv)

    __radd__, __rmul__ = __add__, __mul__

    def __int__(self) -> int:
        """Guarded by its whole value."""
        source, value = self._source, int(float(self))
        self._guards.append(Guard(self._where, lambda snapshot: int(source(snapshot)) == value))
        return value

    __trunc__ = __int__


def window_mean(values: Sequence[float], window: int) -> float:
    """Mean of the last `window` values; 0 when there are none."""
    taken = values[-window:]
    return sum(taken) / len(taken) if taken else 0.0


def agree(values: Sequence[float], how: str) -> float:
    """One value for all ranks, by rank: the most frequent (`mode`, the smaller of equals), `min`, `max`, or rank 0's (`leader`)."""
    match how:
        case "mode":
            return max(sorted(set(values)), key=values.count)
        case "min":
            return min(values)
        case "max":
            return max(values)
        case "leader":
            return values[0]
    raise PolicyError(f"negotiate: there is no way `{how}`\nhint: mode, min, max or leader")
