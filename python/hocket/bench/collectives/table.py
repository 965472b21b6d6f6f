"""The result as a table for people."""

from __future__ import annotations

from rich.table import Table

from hocket.bench.collectives.result import Result, Row
from hocket.report import quantity

MEGA = 1e6


def head(result: Result) -> str:
    """What to know before reading the numbers: the machine, and each contender."""
    near = result.cache_line_ns
    lines = [
        f"{result.collective} of {result.dtype}: {result.world} ranks on {result.cores} cores"
        + (f"; a cache line takes {near:.0f} ns from core to core" if near is not None else "")
    ]
    lines += [
        f"  {each.name}: {each.about}; an empty call takes {quantity.seconds(each.empty_call_s)}"
        for each in result.contenders
    ]
    return "\n".join(lines)


def table(result: Result) -> Table:
    """A row per size and contender; a line between sizes."""
    first = result.contenders[0].name
    made = Table("size", "contender", "time", "p5 to p95", "algorithm MB/s", "bus MB/s", "wrong", f"time / {first}")
    for column in (0, 2, 3, 4, 5, 6, 7):
        made.columns[column].justify = "right"
    size_bytes = None
    for row in result.rows:
        if size_bytes not in (None, row.size_bytes):
            made.add_section()
        made.add_row("" if size_bytes == row.size_bytes else quantity.size(row.size_bytes), *_cells(row))
        size_bytes = row.size_bytes
    return made


def _cells(row: Row) -> list[str]:
    return [
        row.contender,
        quantity.seconds(row.median_s),
        f"{quantity.seconds(row.p5_s)} to {quantity.seconds(row.p95_s)}",
        f"{row.algorithm_byte_per_s / MEGA:,.0f}",
        f"{row.bus_byte_per_s / MEGA:,.0f}",
        f"{row.wrong:,}",
        quantity.ratio(row.ratio),
    ]
