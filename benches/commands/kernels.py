"""`python -m benches kernels`: how fast kernels move memory."""

from __future__ import annotations

from pathlib import Path

import click
from rich.table import Table

from benches.commands.options import cache_line_ns
from hocket.cli.benches.options import numbers_options
from hocket.cli.shared.options import rounds_option
from hocket.cli.shared.output import publish

GIGA = 1e9


@click.command("kernels")
@rounds_option(15)
@numbers_options
def command(*, rounds: int, output: Path | None, as_json: bool) -> None:
    """Bytes per second of each kernel on one core, as a share of memcpy over as many bytes, and of the memory's bandwidth.

    Example: python -m benches kernels -o kernels.json
    """
    from benches.kernels import measure  # noqa: PLC0415  # loads what only this verb needs

    near = cache_line_ns()
    table = Table("kernel", "footprint", "moves", "memcpy beside it", "of memcpy", "of bandwidth")
    measured = []
    for rate in measure(rounds=rounds):
        click.echo(f"{rate.title}, {rate.footprint_bytes >> 10:,} KiB: {rate.of_bandwidth:.2f}", err=True)
        measured.append({name: getattr(rate, name) for name in rate.__struct_fields__})
        table.add_row(
            rate.title,
            f"{rate.footprint_bytes >> 10:,} KiB",
            f"{rate.byte_per_s / GIGA:.1f} GB/s",
            f"{rate.memcpy_byte_per_s / GIGA:.1f} GB/s",
            f"{rate.of_memcpy:.2f}",
            f"{rate.of_bandwidth:.2f}",
        )
    publish((table,), {"cache_line_ns": near, "rows": measured}, as_json=as_json, output=output)
