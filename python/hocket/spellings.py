"""Spellings of sizes and of ranges of steps, in variables and in options alike."""

from __future__ import annotations

import re

BYTES = {"": 1, "B": 1, **{f"{k}{b}": 1000**n for n, k in enumerate("KMG", 1) for b in ("", "B")}}
BYTES |= {f"{k}IB": 1024**n for n, k in enumerate("KMG", 1)}
BYTES_MAX = 1 << 50
NUMBER = re.compile(r"\s*(\d+(?:\.\d+)?(?:E\d+)?)\s*([A-Z]*)(/S)?\s*", re.ASCII)

TRACE_BYTES_MIN = 4096
"""Smallest size: less holds no step of any model."""

STEPS = re.compile(r"(\d{0,10}):(\d{0,10})", re.ASCII)
STEPS_MAX = (1 << 32) - 1


def size(text: str) -> int:
    """Return the bytes of `4KB`, `1.5MiB` or `25e6`. ValueError for anything else, and for less than one byte."""
    found = NUMBER.fullmatch(text.upper())
    if found is None or found[2] not in BYTES or found[3]:
        raise ValueError
    scaled = float(found[1]) * BYTES[found[2]]
    if not 1 <= scaled <= BYTES_MAX:
        raise ValueError
    return int(scaled)


def trace_bytes(text: str) -> int:
    """A size from 4096 bytes, such as 100M or 1.5GiB."""
    found = size(text)
    if found < TRACE_BYTES_MIN:
        raise ValueError
    return found


def steps(text: str) -> str:
    """Steps as a slice: 100:110 (100 to 109), 100: or :10."""
    bounds_of(text)
    return text


def bounds_of(steps: str) -> tuple[int, int | None]:
    """Return the first step, and the first one after the range, if it has an end. ValueError: the text is no slice of steps.

    >>> bounds_of("100:110"), bounds_of(":10"), bounds_of("7:")
    ((100, 110), (0, 10), (7, None))
    """
    found = STEPS.fullmatch(steps.strip())
    if found is None or not (found[1] or found[2]):
        raise ValueError
    first, stop = int(found[1] or 0), int(found[2]) if found[2] else None
    if max(first, stop or 0) > STEPS_MAX or (stop is not None and stop <= first):
        raise ValueError
    return first, stop
