"""`hocket bench ddp`: not how fast, but whether it is the same training."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from hocket.cli.benches.options import json_option, listed, row_option
from hocket.cli.shared.output import write


@click.command("ddp")
@row_option
@click.option("-n", "world", default=2, show_default=True, help="Number of ranks.")
@json_option
def ddp(*, rows: tuple[str, ...], world: int, out: Path | None) -> None:
    """Ways of training with PyTorch, each with DistributedDataParallel on Gloo and with Hocket: are the models equal?

    Prints the table of docs/training.md. Ends with 1 when a way differs. Half a minute.

    Example: hocket bench ddp --row LBFGS
    """
    from hocket.bench.ways.catalogue import WAYS  # noqa: PLC0415  # loads what only this verb needs
    from hocket.bench.ways.run import measure, table  # noqa: PLC0415  # as above

    if listed(rows, WAYS):
        return
    measured = measure(rows or tuple(WAYS), world)
    click.echo(table(measured))
    write(out, {"world": world, "rows": [msgspec.to_builtins(each) for each in measured]})
    if not all(each.met for each in measured):
        raise SystemExit(1)


COMMANDS = (ddp,)
