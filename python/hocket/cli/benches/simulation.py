"""The simulator: how fast it is, and how well it predicts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from rich.table import Table

from hocket.cli.benches.options import json_option, listed
from hocket.cli.shared.output import console, write

if TYPE_CHECKING:
    from hocket.bench.simulate import Speed

MEGA = 1e6


@click.command("simulate")
@click.option("--large", is_flag=True, help="Also a step of 10,240 ranks, which takes most of a minute.")
@json_option
def simulate(*, large: bool, out: Path | None) -> None:
    """Messages per second of the flow engine on one core, beside ASTRA-sim's figures for the same rings.

    Example: hocket bench simulate --json simulate.json
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
    console().print(table)
    write(out, {"runs": measured})


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
@click.option(
    "--cluster",
    "names",
    multiple=True,
    help="One cluster alone; may be given again. `--cluster list` lists them.",
)
@click.option(
    "--fit", "fits", is_flag=True, help="Measure what the constant of trunks is fitted on, and fit it again."
)
@json_option
def predict(*, names: tuple[str, ...], fits: bool, out: Path | None) -> None:
    """Predicted step times against measured ones on emulated clusters. About eight minutes; needs root.

    Example: hocket bench predict --cluster "4 hosts, 1 Gbit/s"
    """
    from hocket.bench.predict import (  # noqa: PLC0415  # loads what only this verb needs
        CLUSTERS,
        FITTED_ON,
        agreement,
        fit,
        measure,
    )

    if fits and names:
        raise click.UsageError("--fit and --cluster: what the constant is fitted on is not chosen by hand")
    names = FITTED_ON if fits else names
    if listed(names, CLUSTERS, "cluster"):
        return
    rows = []
    for name in names or CLUSTERS:
        click.echo(f"measuring {name}", err=True)
        rows += measure([name])
    found = agreement(rows)
    table = Table("cluster", "plan", "measured", "flow", "error", "closed form")
    for row in rows:
        table.add_row(
            row.cluster,
            row.plan,
            f"{row.measured_s * 1e3:.1f} ms",
            f"{row.flow_s * 1e3:.1f} ms",
            f"{row.error:+.1%}",
            f"{row.closed_form_s / row.measured_s - 1:+.1%}",
        )
    console().print(table)
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
    console().print(each)
    for incast, error in fit(rows).items() if fits else ():
        click.echo(
            f"a trunk keeps {incast:g} of its rate for each doubling of its flows: mean error {error:.2%}"
        )
    write(out, msgspec.to_builtins(found))


COMMANDS = [simulate, predict]
