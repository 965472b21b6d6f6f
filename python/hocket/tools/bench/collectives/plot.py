"""Picture of the result as SVG: time and bus bandwidth against size, both scales logarithmic, a line per contender.

A line goes through medians, its band from p5 to p95. Styles, like the report's, are named once for light and dark.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from hocket.tools.bench.collectives.result import Result, Row
from hocket.tools.report import quantity

WIDTH_PX, LINE_PX, FOOT_PX = 1000, 18, 16
PANEL_PX, PLOT_TOP_PX, PLOT_HEIGHT_PX = 490, 118, 300
LEFT_PX, RIGHT_PX = 84, 76
LABEL_GAP_PX = 15
COLOURS = 6

STYLE = """
svg { --page: #ffffff; --ink: #1a1e23; --soft: #545d67; --line: #e3e6e8; background: var(--page);
  --s0: #0a6f6a; --s1: #8a5a00; --s2: #5a4fa3; --s3: #b1405a; --s4: #3d68ad; --s5: #5e6b3a;
  font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
  font-variant-numeric: tabular-nums; }
@media (prefers-color-scheme: dark) { svg { --page: #101316; --ink: #e4e8eb; --soft: #a0aab4; --line: #2d343b;
  --s0: #4cc4ba; --s1: #e0a548; --s2: #a99df0; --s3: #f08aa0; --s4: #8db4ee; --s5: #b4c27e; } }
text { fill: var(--ink); } .soft { fill: var(--soft); font-size: 12px; } .title { font-size: 18px; font-weight: 600; }
.panel { font-weight: 600; } .grid { stroke: var(--line); } .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.band { fill-opacity: .14; stroke-opacity: .2; } .label { font-weight: 600; }
"""


class _Axis(NamedTuple):
    """Map from values to pixels, by their logarithm; `ticks` are values."""

    low: float
    high: float
    from_px: float
    to_px: float
    ticks: tuple[float, ...]

    def px(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.from_px + share * (self.to_px - self.from_px)


class _Panel(NamedTuple):
    """Subject of one half of the picture: a row's value and the ends of its band."""

    title: str
    value: Callable[[Row], float]
    ends: Callable[[Row], tuple[float, float]]
    shown: Callable[[float], str]


def svg(result: Result) -> str:
    """Return the whole picture; there is at least one row.

    Points show their numbers when the pointer rests on them.
    """
    panels = [
        _Panel(
            "time per call", lambda row: row.median_s, lambda row: (row.p5_s, row.p95_s), quantity.seconds
        ),
        _Panel(
            "bus bandwidth",
            lambda row: row.bus_byte_per_s,
            lambda row: (_bus(row, row.p95_s), _bus(row, row.p5_s)),
            lambda value: f"{quantity.size(value)}/s",
        ),
    ]
    foot_px = PLOT_TOP_PX + PLOT_HEIGHT_PX + 62
    height_px = foot_px + LINE_PX * len(result.contenders) + FOOT_PX
    about = [f"{each.name}: {each.about}" for each in result.contenders]
    parts = [
        _text(LEFT_PX - 60, 38, _title(result), "title"),
        _text(LEFT_PX - 60, 60, _machine(result), "soft"),
        *(_draw(result, panel, at * PANEL_PX) for at, panel in enumerate(panels)),
        *(_text(LEFT_PX - 60, foot_px + at * LINE_PX, line, "soft") for at, line in enumerate(about)),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH_PX}" height="{height_px}" '
        f'viewBox="0 0 {WIDTH_PX} {height_px}"><title>{html.escape(_title(result))}</title>'
        f"<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"
    )


def _title(result: Result) -> str:
    return (
        f"{result.collective} of {result.dtype}, {result.world} ranks on {result.cores} cores of one machine"
    )


def _machine(result: Result) -> str:
    wire = "loopback TCP" if result.tcp else "shared memory where a contender has it"
    near = (
        ""
        if result.cache_line_ns is None
        else f"; a cache line takes {result.cache_line_ns:.0f} ns from core to core"
    )
    return f"{wire}{near}; contenders took turns; lines are medians, bands p5 to p95"


def _bus(row: Row, time_s: float) -> float:
    return row.bus_byte_per_s * row.median_s / time_s


def _draw(result: Result, panel: _Panel, left_px: float) -> str:
    top, bottom = PLOT_TOP_PX, PLOT_TOP_PX + PLOT_HEIGHT_PX
    sizes = [float(row.size_bytes) for row in result.rows]
    x = _axis(sizes, left_px + LEFT_PX, left_px + PANEL_PX - RIGHT_PX, fits=6)
    y = _axis([end for row in result.rows for end in panel.ends(row)], bottom, top, fits=7)
    parts = [_text(x.from_px, top - 16, panel.title, "panel")]
    for tick in y.ticks:
        at = y.px(tick)
        parts.append(f'<path class="grid" d="M{x.from_px:.1f} {at:.1f}H{x.to_px:.1f}"/>')
        parts.append(_text(x.from_px - 10, at + 4, _round(panel.shown(tick)), "soft", "end"))
    for tick in x.ticks:
        at = x.px(tick)
        parts.append(f'<path class="grid" d="M{at:.1f} {top}V{bottom}"/>')
        parts.append(_text(at, bottom + 20, _round(quantity.size(tick)), "soft", "middle"))
    ends = {}
    for number, contender in enumerate(result.contenders):
        colour = f"var(--s{number % COLOURS})"
        rows = sorted(
            (row for row in result.rows if row.contender == contender.name), key=lambda row: row.size_bytes
        )
        parts.append(_series(rows, panel, x, y, colour))
        ends[contender.name, colour] = y.px(panel.value(rows[-1]))
    for (name, colour), at in _apart(ends).items():
        parts.append(
            f'<text class="label" x="{x.to_px + 10:.1f}" y="{at + 4:.1f}" style="fill:{colour}">{html.escape(name)}</text>'
        )
    return "\n".join(parts)


def _series(rows: Sequence[Row], panel: _Panel, x: _Axis, y: _Axis, colour: str) -> str:
    at = [x.px(row.size_bytes) for row in rows]
    low = [f"{a:.1f} {y.px(panel.ends(row)[0]):.1f}" for a, row in zip(at, rows, strict=True)]
    high = [f"{a:.1f} {y.px(panel.ends(row)[1]):.1f}" for a, row in zip(at, rows, strict=True)]
    middle = [(a, y.px(panel.value(row))) for a, row in zip(at, rows, strict=True)]
    band = f'<path class="band" fill="{colour}" stroke="{colour}" d="M{"L".join(low + high[::-1])}Z"/>'
    line = "L".join(f"{a:.1f} {b:.1f}" for a, b in middle)
    points = [
        f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.5" fill="{colour}"><title>{html.escape(_tip(row, panel))}</title></circle>'
        for (a, b), row in zip(middle, rows, strict=True)
    ]
    return "\n".join([band, f'<path class="line" stroke="{colour}" d="M{line}"/>', *points])


def _tip(row: Row, panel: _Panel) -> str:
    low, high = panel.ends(row)
    return (
        f"{row.contender}, {quantity.size(row.size_bytes)}: {panel.shown(panel.value(row))} "
        f"({panel.shown(low)} to {panel.shown(high)})"
    )


def _axis(values: Sequence[float], from_px: float, to_px: float, *, fits: int) -> _Axis:
    """Return an axis over all values and a little more; ticks at powers of ten, as many as fit; else between them, else at the
    ends."""
    low, high = min(values) / 1.15, max(values) * 1.15
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    stride = max(1, math.ceil((last - first) / fits))
    tens = [10.0**power for power in range(first, last + 1, stride)]
    finer = [step * 10.0**power for power in range(first, last + 1) for step in (1, 2, 5)]
    for ticks in (tens, finer, sorted({min(values), max(values)})):
        inside = tuple(tick for tick in ticks if low <= tick <= high)
        if len(inside) > 1:
            break
    return _Axis(low, high, from_px, to_px, inside)


def _round(shown: str) -> str:
    """Shorten a tick's text, which is exact: 1.00 ms is 1 ms."""
    number, space, unit = shown.partition(quantity.NARROW_SPACE)
    return (number.rstrip("0").rstrip(".") if "." in number else number) + space + unit


def _apart(places_px: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Return labels from top to bottom, moved down until none covers another."""
    moved: dict[tuple[str, str], float] = {}
    free_px = -math.inf
    for key, at in sorted(places_px.items(), key=lambda item: item[1]):
        moved[key] = max(at, free_px)
        free_px = moved[key] + LABEL_GAP_PX
    return moved


def _text(x: float, y: float, words: str, kind: str, anchor: str = "start") -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'
