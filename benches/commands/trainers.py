"""`python -m benches trainers`: Accelerate, transformers' Trainer and Lightning."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from benches.trainers.rows import ROWS
from hocket.cli.benches.options import numbers_options


@click.command("trainers")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """Steps of the demo's transformer under a trainer, on four emulated hosts that alternate between two racks: the trainer's own
    DDP on Gloo, and `hk.distribute`, exact and rounded, in turns.

    Runs with .venv/clients/bin/python, which `make test-clients` makes. Six minutes a row; needs root.

    Example: python -m benches trainers --row two-racks-accelerate
    """
    publish_rows(rows, ROWS, output=output, as_json=as_json)
