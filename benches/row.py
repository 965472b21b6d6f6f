"""A number of a benchmark beside its target."""

from __future__ import annotations

from msgspec import Struct


class Row(Struct, frozen=True, kw_only=True):
    """One number. `value` is to be at most `target`, or with `least` at least."""

    name: str
    what: str
    value: float
    target: float | None = None
    least: bool = False
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the target is; True without one."""
        if self.target is None:
            return True
        return self.value >= self.target if self.least else self.value <= self.target
