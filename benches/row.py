"""A number of a benchmark beside its target."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median, quantiles

from msgspec import Struct


class Row(Struct, frozen=True, kw_only=True):
    """One number. `value` is to be at most `target`, or with `least` at least. `spread`: 10th and 90th percentile of what `value`
    is the median of."""

    name: str
    what: str
    value: float
    target: float | None = None
    least: bool = False
    unit: str = ""
    spread: tuple[float, float] | None = None

    @classmethod
    def over(
        cls,
        values: Sequence[float],
        *,
        name: str,
        what: str,
        target: float | None = None,
        least: bool = False,
        unit: str = "",
    ) -> Row:
        """The median of several values, with their spread.

        >>> row = Row.over([1.0, 2.0, 3.0, 4.0, 9.0], name="star", what="a step", unit="ms")
        >>> row.value, row.spread, row.shown
        (3.0, (1.4, 7.0), '3 ms (1.4 to 7)')
        """
        low, *_, high = quantiles(values, n=10, method="inclusive") if len(values) > 1 else [*values, *values]
        return cls(
            name=name,
            what=what,
            value=median(values),
            target=target,
            least=least,
            unit=unit,
            spread=(low, high),
        )

    @property
    def met(self) -> bool:
        """Whether the target is; True without one."""
        if self.target is None:
            return True
        return self.value >= self.target if self.least else self.value <= self.target

    @property
    def shown(self) -> str:
        number = f"{self.value:.3g} {self.unit}".rstrip()
        return number if self.spread is None else f"{number} ({self.spread[0]:.3g} to {self.spread[1]:.3g})"
