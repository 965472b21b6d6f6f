"""`python -m benches routes`: buckets of one model on different routes."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from hocket.cli.benches.options import numbers_options


@click.command("routes")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Buckets of one model by different routes: results beside DDP's, bytes sent beside those predicted, and the cost of gradients
    on a device.

    On emulated hosts, all but `staged`; needs root. `staged-vulkan` runs with .venv/vulkan/bin/python.

    Example: python -m benches routes --row mixed
    """
    from benches.routes.rows import ROWS  # noqa: PLC0415  # loads what only this verb needs

    publish_rows(rows, ROWS, output=output, as_json=as_json)
