"""How verbs show tables and write numbers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import Progress

FILE_COLUMNS = 120


def console() -> Console:
    """For what a verb says: a terminal says how wide it is, a file has room for every column."""
    return Console(width=None if sys.stdout.isatty() else FILE_COLUMNS)


def bars(*, transient: bool = False) -> Progress:
    """Bars on standard error: what is done, and for how long; `transient` ones go away, and are for terminals alone."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415  # most verbs are quick

    beside = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    hidden = transient and not beside.is_terminal
    return Progress(*columns, console=beside, transient=transient, disable=hidden)


def write(path: Path | None, result: Any) -> None:
    """As JSON, if somewhere."""
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n")
