"""`python -m benches elastic`: jobs whose ranks die, leave and join."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from hocket.cli.benches.options import numbers_options


@click.command("elastic")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """How long a job stands still when ranks die, leave and join, and what that readiness costs when nothing happens.

    Four ranks train the demo's transformer, on one host eight. Three to twenty minutes a row, `busy` an hour; needs root.
    `make bench-elastic` installs torchft, and measures all rows.

    Example: python -m benches elastic --row star
    """
    from benches.elastic.rows import ROWS  # noqa: PLC0415  # loads what only this verb needs

    publish_rows(rows, ROWS, output=output, as_json=as_json)
