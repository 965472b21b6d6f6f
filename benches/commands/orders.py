"""`python -m benches orders`: what the order of ranks is worth, and how well its cost is predicted."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.table import Table

from benches.commands.options import listed, row_option, verdict
from hocket.cli.benches.options import numbers_options
from hocket.cli.shared.output import publish


@click.command("orders")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """What the order of ranks is worth to Gloo, Open MPI, DDP and LightGBM as they are, and how well its cost is predicted.

    On emulated clusters of eight hosts: links with latency in 2 racks of 4 and 4 racks of 2; trunks that racks share, hosts of
    different rates, hosts with two cards. About 45 minutes; needs root.

    Example: python -m benches orders --row gloo-2
    """
    from benches.orders.rows import ROWS, Compared, measure  # noqa: PLC0415  # loads what only this verb needs
    from benches.orders.scored import Scored  # noqa: PLC0415  # the same

    if listed(rows, ROWS):
        return
    table = Table("row", "what", "measured", "target", "met")
    measured = []
    for row in measure(rows or ROWS):
        click.echo(f"{row.name}: {row.value:.3g}", err=True)
        measured.append(msgspec.to_builtins(row))
        table.add_row(
            row.name,
            row.what,
            f"{row.value:.3g}",
            f"{row.target:g}",
            verdict(row.value >= row.target, row.target),
        )
        if isinstance(row, Scored):
            table.add_row(
                "", f"  chosen over the best of {len(row.orders)}", f"{row.chosen_to_best:.3f}", "", ""
            )
            table.add_row("", "  given over chosen", f"{row.gain:.2f}", "", "")
        if isinstance(row, Compared):
            for order, time_s in row.times_s.items():
                shown = ",".join(map(str, row.orders[order]))
                table.add_row("", f"  {order}: {shown}", f"{time_s * 1e3:.1f} ms", "", "")
    publish((table,), {"rows": measured}, as_json=as_json, output=output)
