"""`python -m benches start`: what ranks do for their start, whole processes included."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from hocket.cli.benches.options import numbers_options


@click.command("start")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """CPU time of a rank until it has trained for three steps, among eight ranks of this host and alone, in turns.

    Five minutes on two cores. `hocket bench verify` has the programs of a start by themselves.

    Example: python -m benches start -o start.json
    """
    from benches.start import ROWS  # noqa: PLC0415  # loads what only this verb needs

    publish_rows(rows, ROWS, output=output, as_json=as_json)
