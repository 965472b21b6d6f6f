"""`python -m benches trees`: all-reduces by trees on networks of accelerators."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from hocket.cli.benches.options import numbers_options


@click.command("trees")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Share of the optimum that an all-reduce of 1 GiB by trees reaches on hosts of A100 and of MI250, by simulation.

    Rows are KIND-HOSTS. The optimum is what the narrowest cut of the network allows.

    Example: python -m benches trees --row a100-2
    """
    from benches.trees.rows import ROWS  # noqa: PLC0415  # loads what only this verb needs

    publish_rows(rows, ROWS, output=output, as_json=as_json)
