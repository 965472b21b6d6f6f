"""Numbers as people read them: three significant digits, the unit always there, a dash for what is not known."""

from __future__ import annotations

import math

UNKNOWN = "–"
NARROW_SPACE = "\u202f"


def seconds(value: float | None) -> str:
    """1.93 s, 105 ms, 620 µs."""
    return _scaled(value, (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)))


def size(value: float | None) -> str:
    """Bytes in decimal units, as links are rated: 9.87 MB."""
    return _scaled(value, (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3), ("B", 1.0)))


def bandwidth(value: float | None) -> str:
    """Bit/s: 941 Mbit/s."""
    return _scaled(
        value, (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3), ("bit/s", 1.0))
    )


def share(value: float | None) -> str:
    """A fraction as percent: 81 %."""
    return UNKNOWN if _missing(value) else f"{100 * value:.0f}{NARROW_SPACE}%"  # type: ignore[operator]


def ratio(value: float | None) -> str:
    """How many times: 6.1×."""
    return UNKNOWN if _missing(value) else f"{digits(value)}×"


def digits(value: float | None, significant: int = 3) -> str:
    """Plain number with `significant` digits and no exponent between 1e-4 and 1e6."""
    if _missing(value):
        return UNKNOWN
    assert value is not None
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if not -5 <= magnitude <= 6:
        return f"{value:.{significant - 1}e}"
    return f"{value:.{max(0, significant - 1 - magnitude)}f}"


def _scaled(value: float | None, units: tuple[tuple[str, float], ...]) -> str:
    if _missing(value):
        return UNKNOWN
    assert value is not None
    if value == 0:
        return f"0{NARROW_SPACE}{units[0][0] if units[0][0] == 's' else units[-1][0]}"
    for name, scale in units:
        if abs(value) >= 0.9995 * scale:
            return f"{digits(value / scale)}{NARROW_SPACE}{name}"
    name, scale = units[-1]
    return f"{digits(value / scale)}{NARROW_SPACE}{name}"


def _missing(value: float | None) -> bool:
    return value is None or not math.isfinite(value)
