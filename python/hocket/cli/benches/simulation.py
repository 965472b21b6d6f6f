"""The simulator: how fast it is, and how well it predicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from hocket.cli.benches.options import listed, numbers_options
from hocket.cli.shared.options import row_option
from hocket.cli.shared.output import publish

if TYPE_CHECKING:
    from hocket.bench.simulate import Speed

MEGA = 1e6


@click.command("simulate")
@click.option("--large", is_flag=True, help="Also a step of 10,240 ranks, which takes most of a minute.")
@numbers_options
def simulate(*, large: bool, output: Path | None, as_json: bool) -> None:
    """Messages per second of the flow engine on one core, beside ASTRA-sim's figures for the same rings.

    Example: hocket bench simulate -o simulate.json
    """
    from hocket.bench import simulate as bench  # noqa: PLC0415  # loads what only this verb needs

    table = Table("run", "took", "messages", "messages/s", "virtual time", "ASTRA-sim says")
    measured = []
    for run in bench.RUNS.values():
        speed = run()
        click.echo(f"{speed.name}: {speed.took_s:.3f} s", err=True)
        measured.append(bench.as_json(speed))
        table.add_row(*_speed_row(speed))
    if large:
        speed, memory_gib = bench.large()
        measured.append({**bench.as_json(speed), "memory_gib_max": memory_gib})
        table.add_row(*_speed_row(speed))
        click.echo(f"largest memory: {memory_gib:.2f} GiB", err=True)
    publish((table,), {"runs": measured}, as_json=as_json, output=output)


def _speed_row(speed: Speed) -> tuple[str, ...]:
    told = (
        ""
        if speed.told_s is None
        else f"{speed.told_s * 1e9:,.0f} ns ({speed.virtual_s / speed.told_s - 1:+.2%})"
    )
    return (
        speed.name,
        f"{speed.took_s:.3f} s",
        f"{speed.messages:,}",
        f"{speed.messages_per_s / MEGA:.2f} M",
        f"{speed.virtual_s * 1e9:,.0f} ns",
        told,
    )


@click.command("predict")
@row_option
@click.option(
    "--fit", "fits", is_flag=True, help="Measure what the constant of trunks is fitted on, and fit it again."
)
@numbers_options
def predict(*, rows: tuple[str, ...], fits: bool, output: Path | None, as_json: bool) -> None:
    """Predicted step times against measured ones on emulated clusters. About eight minutes; needs root.

    Example: hocket bench predict --row "4 hosts, 1 Gbit/s"
    """
    from hocket.bench.predict import (  # noqa: PLC0415  # loads what only this verb needs
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


COMMANDS = [simulate, predict]
