"""`python -m benches autopilot`: jobs that drive themselves."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.table import Table

from benches.commands.options import cache_line_ns, listed, row_option, verdict
from hocket.cli.benches.options import numbers_options
from hocket.cli.shared.output import publish


@click.command("autopilot")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """What two lines gain without a plan, how soon, and what they cost where nothing can be gained.

    On emulated clusters of four hosts at 1 Gbit/s: two racks that alternate with a trunk of 100 Mbit/s, and a star. Up to five
    minutes a row; needs root.

    Example: python -m benches autopilot --row wrong-plan
    """
    from benches.autopilot.rows import ROWS  # noqa: PLC0415  # loads what only this verb needs

    if listed(rows, ROWS):
        return
    near = cache_line_ns()
    table = Table("row", "what", "measured", "target", "met")
    measured = []
    for name in rows or tuple(ROWS):
        for row in ROWS[name]():
            bound = (
                ""
                if row.target is None
                else f"{'≥' if row.least else '≤'} {row.target:g} {row.unit}".rstrip()
            )
            shown = f"{row.value:.3g} {row.unit}".rstrip()
            click.echo(f"{row.name}: {row.what}: {shown}", err=True)
            table.add_row(row.name, row.what, shown, bound, verdict(row.met, row.target))
            measured.append({**msgspec.to_builtins(row), "met": row.met})
    publish((table,), {"cache_line_ns": near, "rows": measured}, as_json=as_json, output=output)
