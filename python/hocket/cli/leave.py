"""`hocket leave RANK`: a rank leaves a running elastic job in order."""

from __future__ import annotations

import click

from hocket.cli.shared.values import SECONDS
from hocket.start import operator, running


@click.command("leave")
@click.argument("rank", type=click.IntRange(0))
@click.option(
    "--job",
    "process",
    type=int,
    metavar="PID",
    help="Of `hocket run` or `hocket coordinator`.  [default: the only one of yours here]",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=SECONDS,
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait until it has left.",
)
def command(*, rank: int, process: int | None, timeout_s: float) -> None:
    """Rank RANK of an elastic job of this machine leaves in order: no step and no sample is lost.

    RANK is the rank at the start of the job, or the number with which it joined. The script of that rank ends with exit code 0
    after its next steps.

    Example: hocket leave 2
    """
    job = running.chosen(process)
    click.echo(
        f"hocket: rank {rank} of job {job.process} is asked to leave; it goes at the end of a step", err=True
    )
    click.echo(operator.leave(job, rank, timeout_s))
