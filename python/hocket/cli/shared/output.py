"""Output of verbs: tables for people, JSON for programs, files; progress goes to standard error."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from hocket.artefacts import files
from hocket.artefacts.cluster import Directions
from hocket.artefacts.network import SIDES
from hocket.errors import UsageError

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.table import Table

FILE_COLUMNS = 120


def console() -> Console:
    """Return a console for a verb's output: a terminal has a width, a file has room for every column."""
    return Console(width=None if sys.stdout.isatty() else FILE_COLUMNS)


def bars(*, transient: bool = False) -> Progress:
    """Return progress bars on standard error, with elapsed time; `transient` ones disappear, and are for terminals alone."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn  # noqa: PLC0415  # most verbs are quick

    beside = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    hidden = transient and not beside.is_terminal
    return Progress(*columns, console=beside, transient=transient, disable=hidden)


def json_text(result: Any) -> str:
    """Return indented JSON of builtins and msgspec's structs, with a newline at its end."""
    return files.json_of(result).decode()


def save(path: Path, text: str) -> None:
    """Write a file. UsageError when that is not possible."""
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def publish(shown: Iterable[Table | str], result: Any, *, as_json: bool, output: Path | None = None) -> None:
    """Print tables and sentences, or `result` as JSON; also write it as JSON to `output`."""
    if as_json:
        click.echo(json_text(result), nl=False)
    else:
        out = console()
        for each in shown:
            if isinstance(each, str):
                out.print(each, highlight=False, markup=False, soft_wrap=True)
            else:
                out.print(each)
    if output is not None:
        save(output, json_text(result))


def rate_text(given: Directions) -> str:
    """Format a rate for people, or those out and in.

    >>> rate_text(1e9), rate_text((2e7, 1e8))
    ('1.00 Gbit/s', '20.0 Mbit/s out, 100.0 Mbit/s in')
    """
    if isinstance(given, tuple):
        return ", ".join(f"{rate_text(rate)} {side}" for rate, side in zip(given, SIDES, strict=True))
    bit_per_s = given
    if bit_per_s >= 1e9:
        return f"{bit_per_s / 1e9:.2f} Gbit/s"
    return f"{bit_per_s / 1e6:.1f} Mbit/s"
