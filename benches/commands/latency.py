"""`python -m benches latency`: two sites far from each other, whose trunk loses packets, against Gloo."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from hocket.cli.benches.options import numbers_options


@click.command("latency")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Share of a long, lossy trunk between two sites that all-reduces of 25 MB use, beside the ring and Gloo.

    Rows are ROUND_TRIP-LOSS, on the testbed; ranks have no file of their network.

    Example: python -m benches latency --row 50ms-1%
    """
    from benches.latency.rows import ROWS  # noqa: PLC0415  # loads what only this verb needs

    publish_rows(rows, ROWS, output=output, as_json=as_json)
