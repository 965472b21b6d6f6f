"""`python -m benches live`: what a live look at a job costs its ranks."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from hocket.cli.benches.options import numbers_options
from hocket.cli.shared.options import world_option
from hocket.cli.shared.values import SECONDS


@click.command("live")
@row_option
@world_option("Number of ranks, on this machine.", default=4)
@click.option(
    "--seconds",
    "duration_s",
    type=SECONDS,
    default=20.0,
    show_default=True,
    metavar="SECONDS",
    help="How long the job trains.",
)
@numbers_options
def command(
    *, rows: tuple[str, ...], world: int, duration_s: float, output: Path | None, as_json: bool
) -> None:
    """Processor time of the thread that reports how a rank gets on, once a second, as a share of a core; of the thread that trains,
    for noting it; and how long a look at the job takes.

    Ranks do next to nothing, so that many fit on one machine; the reports are those of real jobs.

    Example: python -m benches live -n 64
    """
    from benches.live.rows import rows_of  # noqa: PLC0415  # loads what only this verb needs

    publish_rows(rows, rows_of(world, duration_s), output=output, as_json=as_json)
