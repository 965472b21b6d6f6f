"""`python -m benches sharded`: models that FSDP2 shards inside hosts, and who reduces between them."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from benches.sharded.rows import ROWS
from hocket.cli.benches.options import numbers_options


@click.command("sharded")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Steps of a transformer of 3.2 million parameters that FSDP2 shards inside four emulated hosts of two ranks, which alternate
    between two racks: native HSDP on Gloo, and `hsdp_hook`, exact and rounded, in turns.

    Example: python -m benches sharded -o sharded.json
    """
    publish_rows(rows, ROWS, output=output, as_json=as_json)
