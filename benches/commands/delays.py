"""`python -m benches delays`: merged and late gradients."""

from __future__ import annotations

import functools
from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from hocket.cli.benches.options import numbers_options
from hocket.cli.shared.options import svg_option


@click.command("delays")
@row_option
@svg_option
@numbers_options
def command(*, rows: tuple[str, ...], svg_path: Path | None, output: Path | None, as_json: bool) -> None:
    """What merged and late gradients gain, whether training notices, and whether predictions of them are right.

    Most rows need root, for emulated hosts, and take minutes. --svg is of the row `sweep`.

    Example: python -m benches delays --row speed
    """
    from benches.delays.rows import ROWS  # noqa: PLC0415  # loads what only this verb needs
    from benches.delays.sweep import sweep  # noqa: PLC0415

    drawn = ROWS | {"sweep": functools.partial(sweep, svg_path)}
    publish_rows(rows, drawn, output=output, as_json=as_json)
