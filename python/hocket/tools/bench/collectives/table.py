"""Table of the result for people."""

from __future__ import annotations

from rich import box
from rich.table import Table

from hocket.tools.bench.collectives.result import Result, Row
from hocket.tools.report import quantity

MEGA = 1e6


def head(result: Result) -> str:
    """Return facts to know before reading the numbers: the machine, and each contender."""
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
    """Return a row per size and contender; a line between sizes."""
    first = result.contenders[0].name
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    made.add_column("size", justify="right", no_wrap=True)
    made.add_column("contender", no_wrap=True)
    for name in ("time", "p5 to p95", "algorithm\nMB/s", "bus\nMB/s", "CPU", "wrong", f"over\n{first}'s"):
        made.add_column(name, justify="right", no_wrap=True)
    bounded = any(row.bound_share is not None for row in result.rows)
    if bounded:
        made.add_column("of the\nbound", justify="right", no_wrap=True)
    size_bytes = None
    for row in result.rows:
        if size_bytes not in (None, row.size_bytes):
            made.add_section()
        made.add_row(
            "" if size_bytes == row.size_bytes else quantity.size(row.size_bytes),
            *_cells(row, bounded=bounded),
        )
        size_bytes = row.size_bytes
    return made


def _cells(row: Row, *, bounded: bool) -> list[str]:
    # The spread is in the unit of the median beside it.
    low, high = (
        quantity.seconds(each, like=row.median_s).partition(quantity.NARROW_SPACE)[0]
        for each in (row.p5_s, row.p95_s)
    )
    return [
        row.contender,
        quantity.seconds(row.median_s),
        f"{low} to {high}",
        f"{row.algorithm_byte_per_s / MEGA:,.0f}",
        f"{row.bus_byte_per_s / MEGA:,.0f}",
        quantity.seconds(row.cpu_s),
        f"{row.wrong:,}",
        quantity.ratio(row.ratio),
        *(["" if row.bound_share is None else f"{row.bound_share:.2f}"] if bounded else []),
    ]
