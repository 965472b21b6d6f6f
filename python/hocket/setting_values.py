"""Values of settings and options from their texts: a parser raises ValueError for a text that is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, get_args

from hocket import logs
from hocket.errors import UsageError


def flag(text: str) -> bool:
    """`0` or `1`."""
    if text not in ("0", "1"):
        raise ValueError
    return text == "1"


def count(text: str) -> int:
    """A whole number from 1."""
    if int(text) < 1:
        raise ValueError
    return int(text)


def whole(text: str) -> int:
    """A whole number from 0."""
    if int(text) < 0:
        raise ValueError
    return int(text)


SECONDS_MIN, SECONDS_MAX = 1e-3, 1e9
"""Limits of a wait. The longest is 31 years; sums of several fit in whatever unit the system counts time."""


def patience(text: str) -> float:
    """A number of seconds from 0 to 1e9."""
    if not 0 <= float(text) <= SECONDS_MAX:  # nor is it `nan`
        raise ValueError
    return float(text)


def seconds(text: str) -> float:
    """A number of seconds from 0.001 to 1e9."""
    if patience(text) < SECONDS_MIN:
        raise ValueError
    return float(text)


def log_levels(text: str) -> str:
    """LEVEL,NAME=LEVEL,… with levels `debug`, `info`, `warning` and `error` (docs/logs.md)."""
    logs.levels_of(text)
    return text


def seconds_of(search: str) -> float:
    """Return the seconds of a search's time, a number with its unit. UsageError: the text is no time.

    >>> seconds_of("20m"), seconds_of("90s"), seconds_of("1.5h")
    (1200.0, 90.0, 5400.0)
    """
    try:
        time_s = float(search[:-1]) * {"s": 1, "m": 60, "h": 3600}.get(search[-1:], math.nan)
    except ValueError:
        time_s = math.nan
    if not 0 < time_s < math.inf:
        raise UsageError(f"a search of `{search}`\nhint: a time, such as 20m, 90s or 1h")
    return time_s


PORT_MAX = 65535


def ports(text: str) -> str:
    """Two ports from 1 to 65535, FIRST-LAST."""
    first, last = map(int, text.split("-"))
    if not 1 <= first <= last <= PORT_MAX:
        raise ValueError
    return text


def one_of(kind: Any) -> Callable[[str], str]:
    """Return the parser of a type of literal texts."""

    def parsed(text: str) -> str:
        """One of these."""
        if text not in get_args(kind):
            raise ValueError
        return text

    return parsed
