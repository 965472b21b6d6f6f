"""Table of the comparison for people, and sentences below it."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.table import Table

from hocket.tools.bench.methods.result import Comparison, Row
from hocket.tools.report import quantity


def head(found: Comparison) -> str:
    """Return facts to know before reading the numbers."""
    think = f", {quantity.seconds(found.think_s)} more of computation each" if found.think_s else ""
    return (
        f"{found.model}, {found.world} ranks on {found.cores} cores, network: {found.network}; {found.steps} steps{think}; "
        f"AdamW, {len(found.rates)} rates tuned on seed {found.tuned_on}; {len(found.seeds)} seeds; {found.date}"
    )


def table(found: Comparison) -> Table:
    """Return a row for each method."""
    first = found.rows[0]
    made = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False)
    made.add_column("method", no_wrap=True)
    for name in (
        "rate",
        "final loss",
        f"over\n{first.method}'s",
        "deviations",
        "step",
        "to its\nloss",
        "speed-up",
    ):
        made.add_column(name, justify="right", no_wrap=True)
    for each in found.rows:
        made.add_row(*_cells(each, first))
    return made


def sentences(found: Comparison) -> Iterator[str]:
    """Yield what the table cannot show."""
    edges = [each.method for each in found.rows if each.at_edge]
    if edges:
        yield (
            f"* best at an edge of the grid of rates, so a better one may lie beyond it: {', '.join(edges)}; "
            "widen it with --learning-rates"
        )
    beyond = [
        f"{each.method} ({', '.join(f'{rate:g}' for rate in each.beyond)})"
        for each in found.rows
        if each.beyond
    ]
    if beyond:
        yield f"rates tried beyond the grid, where the best lay at its edge: {', '.join(beyond)}"
    diverged = [each.method for each in found.rows if each.loss is None]
    if diverged:
        yield f"training diverged with {', '.join(diverged)}"
    if len(found.seeds) < 3:
        yield f"{len(found.seeds)} seeds say little: differences below a few deviations are noise"
    yield from found.left_out


def _cells(row: Row, first: Row) -> tuple[str, ...]:
    rate = "none" if row.rate is None else f"{row.rate:g}{'*' * row.at_edge}"
    spread = "" if row.deviation is None else f" ± {row.deviation:.3f}"
    speed = None if row.reach_s is None or first.reach_s is None else first.reach_s / row.reach_s
    return (
        row.method,
        rate,
        "diverged" if row.loss is None else f"{row.loss:.3f}{spread}",
        "" if row.over is None else f"{row.over:+.3f}",
        "" if row.effect is None else f"{row.effect:+.1f}",
        "" if row.step_s is None else quantity.seconds(row.step_s),
        "never" if row.reach_s is None else quantity.seconds(row.reach_s),
        "" if speed is None else quantity.ratio(speed),
    )
