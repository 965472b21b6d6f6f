"""The user's file and line behind an op: the innermost frame outside this package."""

from __future__ import annotations

import sys
from pathlib import Path

from hocket.errors import PolicyError

_HERE = str(Path(__file__).parent)


def line() -> tuple[str, int] | None:
    """(file, line) of the caller outside this package."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back  # type: ignore[assignment]
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


def where() -> str:
    """`file:line`, for messages."""
    found = line()
    return "a handler" if found is None else f"{found[0]}:{found[1]}"


def refusal(what: str) -> PolicyError:
    """Make the error for the user's line, ready to raise."""
    file, number = line() or (None, None)
    return PolicyError(f"{where()}: {what}", file=file, line=number)
