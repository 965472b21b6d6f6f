"""`python -m benches delays`: merged and late gradients against the best synchronous plan."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec
from rich.table import Table

from benches.commands.options import cache_line_ns, listed, row_option, verdict
from hocket.cli.benches.options import numbers_options
from hocket.cli.shared.output import publish


@click.command("delays")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Iterations with merged and late gradients, by coverage rate: what travels over what computes.

    On a star of four emulated hosts, with computation that sleeps. About two minutes a row; needs root.

    Example: python -m benches delays --row 1.4
    """
    from benches.delays.rows import (  # noqa: PLC0415  # loads what only this verb needs
        COVERAGE,
        TARGETS,
    )
    from benches.delays.rows import rows as measured_rows  # noqa: PLC0415

    if listed(rows, COVERAGE):
        return
    near = cache_line_ns()
    table = Table(
        "coverage", "contender", "iteration", "predicted", "updates", "times as fast", "target", "met"
    )
    measured = []
    for name in rows or tuple(COVERAGE):
        click.echo(f"measuring a coverage rate of {name}", err=True)
        found = list(measured_rows(name))
        fastest = max(found, key=lambda row: row.times or 0.0)
        for row in found:
            target = TARGETS.get(name) if row is fastest else None
            table.add_row(
                row.coverage,
                row.contender,
                f"{row.measured_s * 1e3:.0f} ms",
                f"{row.predicted_s * 1e3:.0f} ms",
                f"{row.updates:.2f}",
                "" if row.times is None else f"{row.times:.2f}",
                "" if target is None else f"≥ {target:g}",
                verdict((row.times or 0.0) >= (target or 0.0), target),
            )
            measured.append(msgspec.to_builtins(row))
    publish((table,), {"cache_line_ns": near, "rows": measured}, as_json=as_json, output=output)
