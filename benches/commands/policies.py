"""`python -m benches policies`: each ready-made policy against what it is meant to beat."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from benches.commands.options import cache_line_ns, listed, row_option, verdict
from hocket.cli.benches.options import numbers_options
from hocket.cli.shared.output import publish


@click.command("policies")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """The ready-made policies on emulated clusters, each against what it is meant to beat. About ten minutes; needs root.

    Example: python -m benches policies --row two_level
    """
    from benches.policies.rows import ROWS, measure  # noqa: PLC0415  # loads what only this verb needs

    if listed(rows, ROWS):
        return
    near = cache_line_ns()
    table = Table("row", "what", "measured", "target", "met")
    measured = []
    for row in measure(rows or None):
        click.echo(f"{row.name}: {row.value:.4g}{row.unit}", err=True)
        measured.append({name: getattr(row, name) for name in row.__struct_fields__})
        target = "" if row.target is None else f"{row.target:g}{row.unit}"
        met = verdict(row.met, row.target)
        table.add_row(row.name, row.what, f"{row.value:.4g}{row.unit}", target, met)
    publish((table,), {"cache_line_ns": near, "rows": measured}, as_json=as_json, output=output)
