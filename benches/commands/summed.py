"""`python -m benches summed`: parameter servers whose pushes are summed by switches."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from hocket.cli.benches.options import numbers_options

MODELS = ("lenet5", "resnet50")


@click.command("summed")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """How near simulations of switches that sum come to the testbed's switches, which sum the pushes of a captured trace.

    Seven workers and a parameter server train on two racks of four hosts of 40 Mbit/s; needs root. Three minutes for lenet5.

    Example: python -m benches summed --row lenet5
    """
    from benches.models.summed import summed  # noqa: PLC0415  # loads what only this verb needs

    publish_rows(rows, {each: partial(summed, each) for each in MODELS}, output=output, as_json=as_json)
