"""`python -m benches culprits`: whom a job of three ranks blames when one goes wrong, and how soon."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from benches.culprits.cases import SYSTEMS
from hocket.cli.benches.options import numbers_options


@click.command("culprits")
@row_option
@click.option(
    "--system",
    "systems",
    type=click.Choice(SYSTEMS),
    multiple=True,
    help="One system only; repeatable.  [default: all]",
)
@click.option(
    "--runs", type=click.IntRange(1), default=1, show_default=True, metavar="N", help="Jobs of each kind."
)
@numbers_options
def command(
    *, rows: tuple[str, ...], systems: tuple[str, ...], runs: int, output: Path | None, as_json: bool
) -> None:
    """One of three ranks, each on a host of its own, goes wrong in one of many ways: who is blamed, and how long it takes.

    Under `hocket run`, the launcher's last words count; in an elastic job, whom the others go on without; under torchrun, each
    survivor's last line and its error's `rank`; for `warning`, what the launcher says while the job runs; for `hocket top`, what
    `hocket top --json` names until the job ends, or, where others only wait, until it names the right rank. Half a minute for each
    job; cables are cut where network namespaces are allowed.

    Example: python -m benches culprits --row loop --system torchrun
    """
    from benches.culprits.rows import rows_of  # noqa: PLC0415  # loads what only this verb needs

    publish_rows(rows, rows_of(systems or SYSTEMS, runs), output=output, as_json=as_json)
