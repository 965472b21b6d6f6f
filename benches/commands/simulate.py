"""`python -m benches simulate`: how fast the simulator is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table

from hocket.cli.benches.options import numbers_options
from hocket.cli.shared.output import publish

if TYPE_CHECKING:
    from benches.simulate import Speed

MEGA = 1e6


@click.command("simulate")
@click.option("--large", is_flag=True, help="Also a step of 10,240 ranks, which takes most of a minute.")
@numbers_options
def command(*, large: bool, output: Path | None, as_json: bool) -> None:
    """Messages per second of the flow engine on one core, beside ASTRA-sim's figures for the same rings.

    Example: python -m benches simulate -o simulate.json
    """
    from benches import simulate as bench  # noqa: PLC0415  # loads what only this verb needs

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
