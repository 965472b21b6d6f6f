"""Picture of a sweep as SVG: a panel per number of ranks, step time against bandwidth, both logarithmic, a line per strategy."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from hocket.errors import UsageError
from hocket.tools.simulation.sweep import Answer

PANEL_PX, HEIGHT_PX, LEFT_PX, TOP_PX, FOOT_PX = 360, 260, 64, 70, 44
COLOURS = ("#0a6f6a", "#8a5a00", "#5a4fa3", "#b1405a", "#3d68ad", "#5e6b3a")
STYLE = """
svg { background: #ffffff; font: 12px system-ui, sans-serif; }
.axis { stroke: #e3e6e8; } .line { fill: none; stroke-width: 2; }
"""


def svg(answers: Sequence[Answer]) -> str:
    """Return the picture. Raises UsageError for answers at the cluster's own rates: the picture is over bandwidths."""
    rates = [each.case.bandwidth_bit_per_s for each in answers if each.case.bandwidth_bit_per_s is not None]
    if len(rates) < len(answers):
        raise UsageError(
            "the picture is over bandwidths\nhint: give some, such as --bandwidth 100Mbit,1Gbit,10Gbit"
        )
    worlds = sorted({each.case.world for each in answers})
    strategies = list(dict.fromkeys(each.case.strategy for each in answers))
    width_px = LEFT_PX + PANEL_PX * len(worlds)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width_px}" height="{TOP_PX + HEIGHT_PX + FOOT_PX}">',
        f"<style>{STYLE}</style>",
        f'<text x="{LEFT_PX}" y="22" font-size="16" font-weight="600">Step time by bandwidth, ranks and strategy</text>',
    ]
    for at, name in enumerate(strategies):
        place = LEFT_PX + 110 * at
        parts.append(f'<text x="{place}" y="44" fill="{_colour(at)}">{html.escape(name)}</text>')
    times = [each.step_s for each in answers]
    for panel, count in enumerate(worlds):
        left = LEFT_PX + PANEL_PX * panel
        parts.append(f'<text x="{left}" y="{TOP_PX - 6}" font-weight="600">{count} ranks</text>')
        bottom = TOP_PX + HEIGHT_PX
        for rate in sorted(set(rates)):
            x = left + _px(rate, rates, PANEL_PX - 40)
            parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP_PX}" y2="{bottom}"/>')
            parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{rate / 1e6:,.0f}</text>')
        parts.append(f'<text x="{left}" y="{bottom + 34}">Mbit/s of a host</text>')
        for at, name in enumerate(strategies):
            own = sorted(
                (rate, each.step_s)
                for rate, each in zip(rates, answers, strict=True)
                if (each.case.world, each.case.strategy) == (count, name)
            )
            points = [
                f"{left + _px(rate, rates, PANEL_PX - 40):.1f},{bottom - _px(time, times, HEIGHT_PX):.1f}"
                for rate, time in own
            ]
            parts.append(f'<polyline class="line" stroke="{_colour(at)}" points="{" ".join(points)}"/>')
            for point in points:
                across, up = point.split(",")
                parts.append(f'<circle cx="{across}" cy="{up}" r="3.5" fill="{_colour(at)}"/>')
    for time in (max(times), min(times)):
        y = TOP_PX + HEIGHT_PX - _px(time, times, HEIGHT_PX)
        parts.append(f'<text x="{LEFT_PX - 6}" y="{y + 4:.1f}" text-anchor="end">{_shown(time)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _px(value: float, values: Sequence[float], extent_px: float) -> float:
    low, high = min(values), max(values)
    return extent_px * math.log(value / low) / math.log(high / low) if high > low else extent_px / 2


def _colour(at: int) -> str:
    return COLOURS[at % len(COLOURS)]


def _shown(time_s: float) -> str:
    return f"{time_s:.2f} s" if time_s >= 1 else f"{time_s * 1e3:.1f} ms"
