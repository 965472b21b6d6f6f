"""Coverage rates from full overlap to links that carry a quarter of the gradients: gains from merged and late gradients, rates
without gains, and a check that there is never a loss."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from benches.delays import cases
from benches.delays.speed import Contest, measured, rows
from benches.row import Row
from hocket.artefacts.promise import Promise

COVERAGE = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 3.0, 4.0)

PROMISE = Promise("delayed", merge=4, delay=1)

NEVER_BELOW = 0.98
"""Least ratio to the best synchronous contender's speed at all coverage rates: the planner must refuse worse schedules."""

WIDTH_PX, HEIGHT_PX, LEFT_PX, TOP_PX, FOOT_PX, LEGEND_PX = 640, 320, 56, 40, 48, 230
COLOURS = ("#0a6f6a", "#8a5a00", "#5a4fa3", "#b1405a", "#3d68ad", "#5e6b3a")
STYLE = """
svg { background: #ffffff; font: 12px system-ui, sans-serif; }
.axis { stroke: #e3e6e8; } .line { fill: none; stroke-width: 2; }
"""


def sweep(picture: Path | None = None) -> Iterator[Row]:
    """Rows of a transformer under one promise, of which the planner uses any part. `picture`: path for an SVG."""
    contests = []
    for coverage in COVERAGE:
        contests.append(measured(cases.transformer(), coverage, {"merged 4, late by 1": PROMISE}))
        yield from rows("sweep", contests[-1], NEVER_BELOW, None)
    if picture is not None:
        picture.write_text(svg(contests))


def svg(contests: Sequence[Contest]) -> str:
    """SVG of iteration over computation by coverage rate, a line for each contender: 1 is full overlap."""
    names = list(dict.fromkeys(each.contender.name for contest in contests for each in contest.results))
    coverages = [contest.coverage for contest in contests]
    computed_s = cases.FORWARD_S + cases.BACKWARD_S
    times = [each.measured_s / computed_s for contest in contests for each in contest.results]
    right, bottom = LEFT_PX + WIDTH_PX, TOP_PX + HEIGHT_PX
    low, high = math.log(min(coverages)), math.log(max(coverages))

    def across(coverage: float) -> float:
        return LEFT_PX + WIDTH_PX * ((math.log(coverage) - low) / (high - low) if high > low else 0.5)

    def up(ratio: float) -> float:
        return bottom - HEIGHT_PX * (ratio - 1) / max(max(times) - 1, 1e-9)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{right + LEGEND_PX}" height="{bottom + FOOT_PX}">',
        f"<style>{STYLE}</style>",
        f'<text x="{LEFT_PX}" y="20" font-size="16" font-weight="600">An iteration, over its computation, by coverage rate</text>',
    ]
    for coverage in coverages:
        x = across(coverage)
        parts.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP_PX}" y2="{bottom}"/>')
        parts.append(f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{coverage:g}</text>')
    for ratio in range(1, math.ceil(max(times)) + 1):
        if ratio <= max(times):
            y = up(ratio)
            parts.append(f'<line class="axis" x1="{LEFT_PX}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text x="{LEFT_PX - 6}" y="{y + 4:.1f}" text-anchor="end">{ratio}</text>')
    for at, name in enumerate(names):
        colour = COLOURS[at % len(COLOURS)]
        points = [
            f"{across(contest.coverage):.1f},{up(each.measured_s / computed_s):.1f}"
            for contest in contests
            for each in contest.results
            if each.contender.name == name
        ]
        parts.append(f'<polyline class="line" stroke="{colour}" points="{" ".join(points)}"/>')
        y = TOP_PX + 14 + 18 * at
        parts.append(f'<text x="{right + 14}" y="{y}" fill="{colour}">{html.escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"
