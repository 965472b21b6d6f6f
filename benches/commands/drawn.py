"""`python -m benches drawn`: plans of clusters that nobody chose."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from hocket.cli.benches.options import numbers_options


@click.command("drawn")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """The planner against a search that has nothing from it but the simulator, on a hundred drawn clusters; and on three clusters
    of the testbed against ten other plans each, which needs root.

    Racks with unequal trunks, hosts of unequal rates and cards, ranks that only help. Some minutes a row.

    Example: python -m benches drawn --row simulated
    """
    from benches.drawn.rows import ROWS  # noqa: PLC0415  # loads what only this verb needs

    publish_rows(rows, ROWS, output=output, as_json=as_json)
