"""`python -m benches autopilot`: jobs that drive themselves."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from hocket.cli.benches.options import numbers_options


@click.command("autopilot")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """What two lines gain without a plan, how soon, and what they cost where nothing can be gained.

    On emulated clusters of four hosts at 1 Gbit/s: two racks that alternate with a trunk of 100 Mbit/s, and a star. Up to five
    minutes a row; needs root.

    Example: python -m benches autopilot --row wrong-plan
    """
    from benches.autopilot.rows import ROWS  # noqa: PLC0415  # loads what only this verb needs

    publish_rows(rows, ROWS, output=output, as_json=as_json)
