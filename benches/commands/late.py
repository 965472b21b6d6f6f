"""`python -m benches late`: a rank that comes last, against the bound."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from hocket.cli.benches.options import numbers_options


@click.command("late")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """How near plans come to the least time of an all-reduce one of whose ranks comes late.

    Rows HOSTS-LATE, late by so many times of a ring, run on the testbed beside the ring and Gloo; simulated-... do not, and need no
    root.

    Example: python -m benches late --row 4-0.5
    """
    from benches.late.rows import ROWS  # noqa: PLC0415  # loads what only this verb needs

    publish_rows(rows, ROWS, output=output, as_json=as_json)
