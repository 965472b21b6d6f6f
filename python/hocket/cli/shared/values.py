"""Values of options: sizes, rates, lists of numbers and names, spelled the same in every verb."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from hocket.setting_values import patience, seconds
from hocket.spellings import NUMBER, size, steps, trace_bytes

BIT_PER_S = {
    "": 1.0,
    "BIT": 1.0,
    **{f"{k}{b}": 1000.0**n for n, k in enumerate("KMG", 1) for b in ("", "BIT")},
}
BIT_PER_S_MAX = 1e15


def rate(text: str) -> float:
    """Return the bit/s of `100Mbit`, `10Gbit/s` or `1e9`. ValueError for anything else, and for 0."""
    found = NUMBER.fullmatch(text.upper())
    if found is None or found[2] not in BIT_PER_S:
        raise ValueError
    scaled = float(found[1]) * BIT_PER_S[found[2]]
    if not 0 < scaled <= BIT_PER_S_MAX:
        raise ValueError
    return scaled


def count(text: str) -> int:
    """Return a whole number from 1. ValueError for anything else."""
    if not (text.isascii() and text.strip().isdigit() and 0 < int(text) < 1 << 31):
        raise ValueError
    return int(text)


def members(text: str) -> tuple[int, int]:
    """Return the least and the most ranks of `2:4`. ValueError for anything else."""
    least, _, most = text.partition(":")
    found = count(least), count(most)
    if found[0] > found[1]:
        raise ValueError
    return found


def word(text: str) -> str:
    """Return a name. ValueError when it is empty."""
    if not text.strip():
        raise ValueError
    return text.strip()


def learning_rate(text: str) -> float:
    """Return a finite number above 0.

    >>> learning_rate("0.004")
    0.004
    """
    found = float(text)
    if not 0 < found < math.inf:
        raise ValueError(text)
    return found


class One(click.ParamType):  # type: ignore[type-arg]  # generic in new versions of click alone
    """Type of one value; `name` is its name in help, `such_as` the example in the error."""

    def __init__(self, name: str, such_as: str, parse: Callable[[str], Any]) -> None:
        """Make the type. `parse` raises ValueError for an invalid value."""
        self.name, self.such_as, self.parse = name, such_as, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the value; BadParameter shows an example."""
        if not isinstance(value, str):
            return value
        try:
            return self.parse(value)
        except (ValueError, OverflowError):
            self.fail(f"`{value}` is not {self.such_as}", param, ctx)


class Real(click.FloatRange):
    """Type of a finite number in a range: nan and inf are refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the number; BadParameter for others."""
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number", param, ctx)
        return found


class Some(click.ParamType):  # type: ignore[type-arg]  # as above
    """Type of several values, separated by commas, as a tuple."""

    def __init__(self, name: str, one: One) -> None:
        """Make the type; `one` is the type of each value."""
        self.name, self.one = name, one

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the values; BadParameter names the wrong one."""
        if not isinstance(value, str):
            return value
        return tuple(self.one.convert(each, param, ctx) for each in value.split(","))


class Word(click.Choice):  # type: ignore[type-arg]  # as above
    """Type of one of some names, which may be written with `-` for `_`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the name as it is in the choices."""
        return super().convert(value.replace("-", "_") if isinstance(value, str) else value, param, ctx)


SIZE = One("size", "a size such as 4KB or 1.5MiB", size)
SIZES = Some("sizes", SIZE)
RATE = One("rate", "a rate such as 100Mbit or 10Gbit", rate)
RATES = Some("rates", RATE)
COUNTS = Some("counts", One("count", "a whole number from 1", count))
SECONDS = One("seconds", "a number of seconds from 0.001 to 1e9", seconds)
STEPS = One("steps", "a slice of steps such as 100:110, 100: or :10", steps)
TRACE_BYTES = One("size", "a size from 4096 bytes, such as 100M or 1.5GiB", trace_bytes)
PATIENCE = One("seconds", "a number of seconds from 0 to 1e9", patience)
LEARNING_RATES = Some("rates", One("rate", "a learning rate above 0 such as 0.004", learning_rate))
NAMES = Some("names", One("name", "a name", word))
