"""`python -m benches order-search`: how good orders are, and how long they take to find."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from benches.commands.options import listed, row_option, verdict
from hocket.cli.benches.options import numbers_options
from hocket.cli.shared.output import publish


@click.command("order-search")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """How good the orders of `hocket order` are, and how long they take to find. About ten minutes.

    Example: python -m benches order-search --row small -o order.json
    """
    from benches.order_search.measure import ROWS, measure  # noqa: PLC0415  # loads what only this verb needs

    if listed(rows, ROWS):
        return
    table = Table("row", "what", "measured", "target", "met", "search")
    measured = []
    for row in measure(rows):
        click.echo(f"{row.what}: {row.value:.4f}", err=True)
        measured.append({name: getattr(row, name) for name in row.__struct_fields__} | {"met": row.met})
        target = "" if row.target is None else f"{row.target:g}"
        met = verdict(row.met, row.target)
        table.add_row(row.name, row.what, f"{row.value:.4f}", target, met, f"{row.seconds:.2f} s")
    publish((table,), {"rows": measured}, as_json=as_json, output=output)
