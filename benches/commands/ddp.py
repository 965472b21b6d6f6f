"""`python -m benches ddp`: not how fast, but whether it is the same training."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import listed, row_option
from hocket.cli.benches.options import numbers_options
from hocket.cli.shared.options import world_option
from hocket.cli.shared.output import publish


@click.command("ddp")
@row_option
@world_option(default=2)
@numbers_options
def command(*, rows: tuple[str, ...], world: int, output: Path | None, as_json: bool) -> None:
    """Ways of training with PyTorch, each with DistributedDataParallel on Gloo and with Hocket: are the models equal?

    Prints the table of docs/training.md. Ends with 1 when a way differs. Half a minute.

    Example: python -m benches ddp --row LBFGS
    """
    from benches.ddp.catalogue import WAYS  # noqa: PLC0415  # loads what only this verb needs
    from benches.ddp.run import measure, table  # noqa: PLC0415  # as above

    if listed(rows, WAYS):
        return
    measured = measure(rows or tuple(WAYS), world)
    result = {"world": world, "rows": measured}
    publish((table(measured),), result, as_json=as_json, output=output)
    if not all(each.met for each in measured):
        raise SystemExit(1)
