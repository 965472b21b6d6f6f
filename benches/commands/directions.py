"""`python -m benches directions`: hosts that are slow in one direction or both, against the bound."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from hocket.cli.benches.options import numbers_options


@click.command("directions")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """How near plans come to the least time of an all-reduce where hosts are slow, in one direction or both.

    Rows WAY-HOSTS-SHARE-SLOW run on the testbed beside the ring and Gloo; simulated-... do not, and need no root.

    Example: python -m benches directions --row one-4-0.75-2
    """
    from benches.directions.rows import ROWS  # noqa: PLC0415  # loads what only this verb needs

    publish_rows(rows, ROWS, output=output, as_json=as_json)
