"""Files of lines of JSON that grow while a job runs: how a line is added, and how the lines of a file that was cut off are read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from hocket.artefacts.decoding import MALFORMED
from hocket.errors import ArtefactError

Row = TypeVar("Row")


def append(path: Path, line: Struct | dict[str, Any]) -> None:
    """Add a line. Raises ArtefactError, with the reason, when the file cannot be written."""
    try:
        with path.open("ab") as file:
            file.write(msgspec.json.encode(line) + b"\n")
    except OSError as error:
        raise ArtefactError(f"{path} cannot be written: {error.strerror}") from None


def read_lines(path: Path, parsed: Callable[[bytes], Row], what: str) -> tuple[Row, ...]:
    """Return the lines of a file as `parsed` returns them; none without a file. A last line that was cut off is left out.

    Raises ArtefactError, in which another line is not `what`, when `parsed` raises one of MALFORMED.
    """
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise ArtefactError(f"{path} cannot be read: {error.strerror}") from None
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(parsed(line))
        except MALFORMED:
            if number < len(lines):
                raise ArtefactError(
                    f"{path}: line {number} is not {what}\nhint: remove the line to read the others"
                ) from None
    return tuple(rows)
