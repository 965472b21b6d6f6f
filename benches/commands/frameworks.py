"""`python -m benches frameworks`: JAX and TensorFlow."""

from __future__ import annotations

from pathlib import Path

import click

from benches.commands.options import publish_rows, row_option
from hocket import extras
from hocket.cli.benches.options import numbers_options


@click.command("frameworks")
@row_option
@numbers_options
def command(*, rows: tuple[str, ...], output: Path | None, as_json: bool) -> None:
    """JAX with Hocket against JAX's psum on Gloo, and TensorFlow with it against MultiWorkerMirroredStrategy, in turns, on emulated
    hosts; what leaves during backward; and the cost of a leaf.

    Medians, and 10th and 90th percentiles. Runs with .venv/frameworks/bin/python, which `make test-frameworks` makes. Up to five
    minutes a row; most need root.

    Example: python -m benches frameworks --row star-jax
    """
    extras.need("jax", "python -m benches frameworks")
    extras.need("tensorflow", "python -m benches frameworks")
    from benches.frameworks.rows import ROWS  # noqa: PLC0415  # loads what only this verb needs

    publish_rows(rows, ROWS, output=output, as_json=as_json)
