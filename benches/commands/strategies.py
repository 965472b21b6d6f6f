"""`python -m benches strategies`: the planner's plans against builders'."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from hocket.cli.benches.options import numbers_options


@click.command("strategies")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """The planner's plan against those of DDP, Horovod and AutoDist's builders, all on Hocket's engine.

    A model of 13 MB on emulated clusters; computation sleeps. About a minute a row; needs root.

    Example: python -m benches strategies --row slow-host
    """
    from benches.strategies.rows import ROWS  # noqa: PLC0415  # loads what only this verb needs

    publish_rows(rows, ROWS, output=output, as_json=as_json)
