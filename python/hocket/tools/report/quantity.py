"""Numbers for people: three significant digits, always a unit, a dash for unknown values."""

from __future__ import annotations

import math
from collections.abc import Iterable

UNKNOWN = "\u2013"
NARROW_SPACE = "\u202f"
TIMES = "\u00d7"


def seconds(value: float | None, like: float | None = None) -> str:
    """Return text such as 1.93 s, 105 ms, 620 µs. `like`: a value whose unit and decimals are used, so that columns compare."""
    return _scaled(value, (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)), like)


def size(value: float | None, like: float | None = None) -> str:
    """Return bytes in decimal units, as links are rated: 9.87 MB. `like` as in `seconds`."""
    return _scaled(value, (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)), like)


def block(value: int) -> str:
    """Return a size that a person chose, in binary units if it is a whole number of them: 256 KiB."""
    for name, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if value >= scale and value % (scale // 4) == 0:
            return f"{value / scale:g}{NARROW_SPACE}{name}"
    return size(value)


def bandwidth(value: float | None) -> str:
    """Return bit/s as text: 941 Mbit/s."""
    return _scaled(
        value, (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0))
    )


def share(value: float | None) -> str:
    """Return a fraction as percent: 81 %."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{100 * value:.0f}{NARROW_SPACE}%"


def ratio(value: float | None) -> str:
    """Return a ratio with the multiplication sign: two digits, the precision of a single run."""
    return UNKNOWN if value is None or not math.isfinite(value) else f"{digits(value, 2)}{TIMES}"


def digits(value: float | None, significant: int = 3) -> str:
    """Return a plain number with `significant` digits and no exponent between 1e-4 and 1e6."""
    if value is None or not math.isfinite(value):
        return UNKNOWN
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if not -5 <= magnitude <= 6:
        return f"{value:.{significant - 1}e}"
    return f"{value:.{max(0, significant - 1 - magnitude)}f}"


def greatest(values: Iterable[float | None]) -> float | None:
    """Return the greatest of a column's known values, to pass as `like`."""
    return max((value for value in values if value is not None), default=None)


def _scaled(value: float | None, units: tuple[tuple[str, float], ...], like: float | None = None) -> str:
    if value is None or not math.isfinite(value):
        return UNKNOWN
    reference = abs(like if like else value)
    name, scale = next(((n, s) for n, s in units if reference >= 0.9995 * s), units[-1])
    if value == 0:
        return f"0{NARROW_SPACE}{name if like else _plain(units)}"
    if not like:
        return f"{digits(value / scale)}{NARROW_SPACE}{name}"
    decimals = max(0, 2 - math.floor(math.log10(reference / scale * 1.0005)))
    return f"{value / scale:.{decimals}f}{NARROW_SPACE}{name}"


def _plain(units: tuple[tuple[str, float], ...]) -> str:
    """Return the unit without a prefix."""
    return next(name for name, scale in units if scale == 1.0)
