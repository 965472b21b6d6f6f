"""How verbs show tables and write numbers."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

FILE_COLUMNS = 120


def console() -> Console:
    """For what a verb says: a terminal says how wide it is, a file has room for every column."""
    return Console(width=None if sys.stdout.isatty() else FILE_COLUMNS)


def write(path: Path | None, result: Any) -> None:
    """As JSON, if somewhere."""
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n")
