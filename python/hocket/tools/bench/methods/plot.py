"""Picture of the comparison as SVG: held-out loss against wall time, a line per method through the mean of its seeds."""

from __future__ import annotations

import html
import statistics
from collections.abc import Iterator, Sequence

from hocket.tools.bench.collectives.plot import STYLE
from hocket.tools.bench.methods import table
from hocket.tools.bench.methods.result import Comparison, Row
from hocket.tools.report import quantity

WIDTH_PX, PLOT_PX, LEFT_PX, TOP_PX, LINE_PX = 1000, 380, 64, 84, 18
RIGHT_PX = 720
COLOURS = 6
TICKS = 5
DASHES = ("", "7 4", "2 3")
"""Forms of lines: colours begin anew with each."""


def svg(found: Comparison) -> str:
    """Return the whole picture; methods that diverged have no line."""
    rows = [each for each in found.rows if each.loss is not None]
    lines = {each.method: list(_points(each)) for each in rows}
    times = [time_s for own in lines.values() for time_s, _ in own] or [1.0]
    losses = [loss for own in lines.values() for _, loss in own] or [0.0, 1.0]
    latest, low, high = max(times), min(losses), max(losses)
    high = high if high > low else low + 1.0

    def x(time_s: float) -> float:
        return LEFT_PX + time_s / latest * (RIGHT_PX - LEFT_PX)

    def y(loss: float) -> float:
        return TOP_PX + (high - loss) / (high - low) * PLOT_PX

    parts = [
        f'<text class="title" x="24" y="36">Loss against wall time: {html.escape(found.model)}</text>',
        f'<text class="soft" x="24" y="58">{html.escape(table.head(found))}</text>',
    ]
    for at in range(TICKS + 1):
        loss, time_s = low + (high - low) * at / TICKS, latest * at / TICKS
        parts += [
            f'<path class="grid" d="M{LEFT_PX} {y(loss):.1f}H{RIGHT_PX}"/>',
            f'<text class="soft" text-anchor="end" x="{LEFT_PX - 8}" y="{y(loss) + 4:.1f}">{loss:.2f}</text>',
            f'<text class="soft" text-anchor="middle" x="{x(time_s):.1f}" y="{TOP_PX + PLOT_PX + 20}">'
            f"{quantity.seconds(time_s) if at else '0'}</text>",
        ]
    for number, (row, own) in enumerate(zip(rows, lines.values(), strict=True)):
        colour, dash = f"var(--s{number % COLOURS})", DASHES[number // COLOURS % len(DASHES)]
        way = "L".join(f"{x(time_s):.1f} {y(loss):.1f}" for time_s, loss in own)
        label_px = TOP_PX + LINE_PX * number
        parts += [
            f'<path class="line" stroke="{colour}" stroke-dasharray="{dash}" d="M{way}"><title>{_tip(row)}</title></path>',
            f'<path class="line" stroke="{colour}" stroke-dasharray="{dash}" d="M{RIGHT_PX + 16} {label_px}h22"/>',
            f'<text x="{RIGHT_PX + 46}" y="{label_px + 4}">{_tip(row)}</text>',
        ]
    height_px = max(TOP_PX + PLOT_PX + 44, TOP_PX + LINE_PX * (len(rows) + 1))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH_PX}" height="{height_px}" '
        f'viewBox="0 0 {WIDTH_PX} {height_px}"><title>Loss against wall time</title><style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _tip(row: Row) -> str:
    return html.escape(f"{row.method}, {row.loss:.3f}")


def _points(row: Row) -> Iterator[tuple[float, float]]:
    """Yield means of time and loss over the seeds, point by point."""
    for points in zip(*row.curves, strict=True):
        losses: Sequence[float] = [each.loss for each in points if each.loss is not None]
        yield statistics.fmean(each.time_s for each in points), statistics.fmean(losses)
