"""`python -m benches predict`: how well the simulator predicts step times."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from benches.commands.options import listed, row_option
from hocket.cli.benches.options import numbers_options
from hocket.cli.shared.output import publish


@click.command("predict")
@row_option
@click.option(
    "--fit", "fits", is_flag=True, help="Measure what the constant of trunks is fitted on, and fit it again."
)
@numbers_options
def command(*, rows: tuple[str, ...], fits: bool, output: Path | None, as_json: bool) -> None:
    """Predicted step times against measured ones on emulated clusters. About eight minutes; needs root.

    Example: python -m benches predict --row "4 hosts, 1 Gbit/s"
    """
    from benches.predict.measure import (  # noqa: PLC0415  # loads what only this verb needs
        CLUSTERS,
        FITTED_ON,
        agreement,
        fit,
        measure,
    )

    if fits and rows:
        raise click.UsageError("--fit and --row: what the constant is fitted on is not chosen by hand")
    names = FITTED_ON if fits else rows
    if listed(names, CLUSTERS):
        return
    measured = []
    for name in names or CLUSTERS:
        click.echo(f"measuring {name}", err=True)
        measured += measure([name])
    found = agreement(measured)
    table = Table("cluster", "plan", "measured", "flow", "error", "closed form")
    for row in measured:
        table.add_row(
            row.cluster,
            row.plan,
            f"{row.measured_s * 1e3:.1f} ms",
            f"{row.flow_s * 1e3:.1f} ms",
            f"{row.error:+.1%}",
            f"{row.closed_form_s / row.measured_s - 1:+.1%}",
        )
    each = Table("cluster", "configurations", "median error", "worst", "Spearman", "regret")
    scores = {
        f"{name}{', fitted on' if name in FITTED_ON else ''}": of for name, of in found.clusters.items()
    }
    if found.held_out is not None:
        scores["all that nothing was fitted to, worst Spearman and regret"] = found.held_out
    for name, of in scores.items():
        each.add_row(
            name,
            str(of.configurations),
            f"{of.median_error:.1%}",
            f"{of.worst_error:.1%}",
            f"{of.spearman:.3f}",
            f"{of.regret:.1%}",
        )
    trunks = [
        f"a trunk keeps {incast:g} of its rate for each doubling of its flows: mean error {error:.2%}"
        for incast, error in (fit(measured).items() if fits else ())
    ]
    publish((table, each, *trunks), found, as_json=as_json, output=output)
