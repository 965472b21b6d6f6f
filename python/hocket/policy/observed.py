"""Statistics in handlers: numbers whose every use in a decision is recorded.

One rule holds: arithmetic with a statistic gives another statistic, and every other use becomes a guard, which holds
while that use has the same result. An `Observed` is no `float`, because C code would read a float's value without
calling any of its methods. When newer statistics break a guard, the policy is traced again in the next epoch.
"""

from __future__ import annotations

import math
import numbers
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hocket.errors import PolicyError
from hocket.policy import sources

Snapshot = Sequence[Mapping[str, Sequence[float]]]
"""Latest values of each statistic by rank, oldest first."""

Source = Callable[[Snapshot], Any]

DEPTH_MAX = 100
"""Depth of operations after which a statistic is guarded by its value: guards recompute them recursively."""


@dataclass(frozen=True)
class Guard:
    """Assumption of a trace, and the user's line that made it."""

    where: str
    holds: Callable[[Snapshot], bool]


class Assumptions:
    """The statistics of one trace, and the guards from its handlers' uses of them."""

    def __init__(self, snapshot: Snapshot) -> None:
        """Begin without guards."""
        self.snapshot = snapshot
        self.guards: list[Guard] = []
        self.closed = False
        self.looked = False
        """True if a handler has received a statistic."""

    def check_open(self) -> None:
        """Raise PolicyError when the trace is over: a guard would come too late."""
        if self.closed:
            raise sources.refusal(
                "uses a statistic, or a `cx`, that was kept from another call of a handler\n"
                "hint: keep nothing between calls: ask `cx.get` or `cx.negotiate` again"
            )

    def observe(self, source: Source) -> Observed:
        """Return the number that `source` computes from the statistics."""
        self.check_open()
        self.looked = True
        return _made(self, source(self.snapshot), source, 0)


@dataclass(frozen=True)
class _Outcome:
    """The result of an operation, or the error that it raised."""

    value: Any = None
    error: Exception | None = None

    @property
    def kind(self) -> type:
        return type(self.value if self.error is None else self.error)

    @property
    def exactly(self) -> tuple[type, str, bytes]:
        """Key that is equal only for identical results: zeros have their signs, NaN all of its bits, and equals itself."""
        parts = (self.value.real, self.value.imag) if isinstance(self.value, float | complex) else ()
        return self.kind, repr(self.value), struct.pack(f"{len(parts)}d", *parts)

    def take(self) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


def _outcome(operation: Callable[..., Any], *operands: Any) -> _Outcome:
    try:
        return _Outcome(value=operation(*operands))
    except (ArithmeticError, TypeError, ValueError) as error:
        return _Outcome(error=error)


def _derived(name: str, *, reflected: bool = False, may_raise: bool = False) -> Callable[..., Any]:
    """Make a method that does arithmetic with the function of that name in `operator` or `builtins`."""
    operation = _OPERATIONS[name]

    def method(self: Observed, *others: object) -> Any:
        if not all(isinstance(other, numbers.Real) for other in others):
            return NotImplemented
        return self._derive(operation, (*others, self) if reflected else (self, *others), may_raise=may_raise)

    return method


def _compared(operation: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    def method(self: Observed, other: object) -> Any:
        if not isinstance(other, numbers.Number):
            return NotImplemented
        return self._guarded(operation, other)

    return method


def _converted(operation: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: Observed) -> Any:
        return self._guarded(operation)

    return method


_OPERATIONS: dict[str, Callable[..., Any]] = {
    "divmod": divmod,
    **{name: getattr(operator, name) for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")},
    **{name: getattr(operator, name) for name in ("neg", "pos", "abs")},
}


class Observed:
    """A statistic in a handler, made by `cx.get` and by arithmetic with it. It behaves as its current float.

    Arithmetic is recorded. Everything else is a guard: comparisons, `int`, `round` and `str` guard their result;
    `float`, and with it `math`, NumPy and ops with constants (`cx.scale`), guard the value itself, which seldom stays the same:
    round the statistic first.
    """

    __slots__ = ("_assumptions", "_depth", "_source", "_value")

    _assumptions: Assumptions
    _depth: int
    _source: Source
    _value: float

    def __init__(self, *_: object) -> None:
        """Refused: `cx.get` makes statistics."""
        raise sources.refusal(
            "turns a number into a statistic, which only `cx.get` makes\n"
            "hint: give functions that keep the type of their arguments `float(x)`"
        )

    def _guarded(self, operation: Callable[..., Any], *others: object) -> Any:
        """The current result of `operation`; the trace holds while the result stays the same."""
        outcome, source = self._applied(operation, (self, *others))
        self._guard(outcome.exactly, lambda snapshot: _outcome(source, snapshot).exactly)
        return outcome.take()

    def _derive(self, operation: Callable[..., Any], operands: tuple[object, ...], *, may_raise: bool) -> Any:
        """The result as a statistic; guarded if a handler could see a difference: an error, or another type."""
        outcome, source = self._applied(operation, operands)
        depth = 1 + max(each._depth for each in operands if isinstance(each, Observed))
        if outcome.error is not None or not isinstance(outcome.value, int | float) or depth > DEPTH_MAX:
            self._guard(outcome.exactly, lambda snapshot: _outcome(source, snapshot).exactly)
            return outcome.take()
        if may_raise:
            self._guard(outcome.kind, lambda snapshot: _outcome(source, snapshot).kind)
        return _made(self._assumptions, outcome.value, source, depth)

    def _applied(
        self, operation: Callable[..., Any], operands: tuple[object, ...]
    ) -> tuple[_Outcome, Source]:
        """The result of an operation on the current numbers, with its derivation from other statistics."""
        for each in operands:
            if isinstance(each, Observed):
                each._assumptions.check_open()
        parts = [source_of(each) for each in operands]
        values = [each._value if isinstance(each, Observed) else each for each in operands]
        return _outcome(operation, *values), lambda snapshot: operation(*[part(snapshot) for part in parts])

    def _guard(self, now: object, then: Callable[[Snapshot], object]) -> None:
        self._assumptions.guards.append(Guard(sources.where(), lambda snapshot: then(snapshot) == now))

    __lt__, __le__ = _compared(operator.lt), _compared(operator.le)
    __gt__, __ge__ = _compared(operator.gt), _compared(operator.ge)
    __eq__, __ne__ = _compared(operator.eq), _compared(operator.ne)

    __add__, __radd__ = _derived("add"), _derived("add", reflected=True)
    __sub__, __rsub__ = _derived("sub"), _derived("sub", reflected=True)
    __mul__, __rmul__ = _derived("mul"), _derived("mul", reflected=True)
    __truediv__ = _derived("truediv", may_raise=True)
    __rtruediv__ = _derived("truediv", reflected=True, may_raise=True)
    __floordiv__ = _derived("floordiv", may_raise=True)
    __rfloordiv__ = _derived("floordiv", reflected=True, may_raise=True)
    __mod__ = _derived("mod", may_raise=True)
    __rmod__ = _derived("mod", reflected=True, may_raise=True)
    __divmod__ = _derived("divmod", may_raise=True)
    __rdivmod__ = _derived("divmod", reflected=True, may_raise=True)
    __pow__ = _derived("pow", may_raise=True)
    __rpow__ = _derived("pow", reflected=True, may_raise=True)
    __neg__, __pos__, __abs__ = _derived("neg"), _derived("pos"), _derived("abs")

    __bool__ = _converted(bool)
    # The hash of NaN is its address, which changes every time.
    __hash__ = _converted(lambda value: 0 if math.isnan(value) else hash(value))
    __float__, __complex__ = _converted(float), _converted(complex)
    __int__, __trunc__ = _converted(int), _converted(math.trunc)
    __floor__, __ceil__ = _converted(math.floor), _converted(math.ceil)
    __str__, __repr__ = _converted(str), _converted(repr)
    as_integer_ratio = _converted(lambda value: float(value).as_integer_ratio())
    is_integer = _converted(lambda value: float(value).is_integer())
    hex = _converted(lambda value: float(value).hex())

    def __round__(self, digits: int | None = None) -> Any:
        """Round the current value; guards the rounded value."""
        return self._guarded(lambda value: round(value, digits))

    def __format__(self, spec: str) -> str:
        """Format the current value; guards the text."""
        return str(self._guarded(lambda value: format(value, spec)))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Convert for NumPy; guards the value."""
        import numpy as np  # noqa: PLC0415  # `import hocket` loads no NumPy

        return np.array(float(self), dtype=dtype)

    def __reduce_ex__(self, _protocol: Any) -> tuple[type[float], tuple[float]]:
        """Pickle the value alone; guards the value."""
        return float, (float(self),)

    __reduce__ = __getstate__ = _converted(float)

    def __copy__(self) -> Observed:
        """Return the statistic itself: numbers are immutable."""
        return self

    def __deepcopy__(self, _memo: object) -> Observed:
        """Return the statistic itself."""
        return self

    def conjugate(self) -> Observed:
        """Return the statistic itself, which is a real number."""
        return self

    real = property(conjugate)
    imag = 0.0


numbers.Real.register(Observed)


def _made(assumptions: Assumptions, value: float, source: Source, depth: int) -> Observed:
    made = object.__new__(Observed)
    made._assumptions, made._value, made._source, made._depth = assumptions, value, source, depth
    return made


def source_of(value: object) -> Source:
    """The derivation of a statistic, or of a constant, from statistics."""
    return value._source if isinstance(value, Observed) else lambda _snapshot: value


def window_mean(values: Sequence[float], window: int) -> float:
    """Mean of the last `window` values; 0 when there are none."""
    taken = values[-window:]
    return sum(taken) / len(taken) if taken else 0.0


def agree(values: Sequence[float], how: str) -> float:
    """Reduce the ranks' values to one: the most frequent (`mode`, the smaller of equals), `min`, `max`, or rank 0's (`leader`)."""
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
