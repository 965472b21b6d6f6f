"""`python -m benches owners`: owners that update."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from hocket.cli.benches.options import numbers_options


@click.command("owners")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """What it costs and saves that owners alone update buckets: steps, the optimizer's memory, equal bits.

    Four ranks with AdamW, in turns with the same buckets that all ranks update. A minute a row; needs root.

    Example: python -m benches owners --row star
    """
    from benches.owners.rows import ROWS  # noqa: PLC0415  # loads what only this verb needs

    publish_rows(rows, ROWS, output=output, as_json=as_json)
