"""Pictures of many values at once, in plain SVG and HTML without script: cumulative distributions, and bars from least to most.

The plot area stretches with the window; lines keep their width, and texts are HTML around it, so that they keep their size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from hocket.tools.report.markup import Html, joined, tag

LINES_MAX = 6
"""Limit of lines in a picture: the style sheet has as many colours."""

TICKS_MAX = 4
"""Limit of labelled values below a picture: as many texts are beside one another on a telephone."""

HIGH, WIDE = 100, 1000
"""Extents of the plot area, which the style sheet stretches."""


class Line(NamedTuple):
    """Line of a distribution: points of (value, share of all that is at most this value)."""

    label: str
    points: Sequence[tuple[float, float]]


class Bar(NamedTuple):
    """Extent of values: from the least to the 99th percentile, with a mark at the mean."""

    least: float
    mean: float
    most: float


def distribution(
    caption: str, lines: Sequence[Line], show: Callable[[float], str], *, log: bool = True
) -> Html:
    """Return the picture of at most LINES_MAX lines over one axis; `log`: for durations and sizes, which span magnitudes."""
    drawn = [line for line in lines if line.points][:LINES_MAX]
    values = [value for line in drawn for value, _ in line.points]
    if not values:
        return Html("")
    scale = Scale(values, log=log)
    paths = (tag("path", d=_steps(line, scale), class_=f"s{at}") for at, line in enumerate(drawn))
    grid = (tag("path", d=f"M0 {HIGH * at / 4:g}H{WIDE}", class_="grid") for at in range(5))
    spoken = "; ".join(f"{line.label}: half are at most {show(_at(line, 0.5))}" for line in drawn)
    plot = tag(
        "svg",
        *grid,
        *paths,
        viewBox=f"0 0 {WIDE} {HIGH}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{caption}. {spoken}.",
    )
    marks = (tag("span", f"{100 - 25 * at} %", style=f"top:{25 * at}%") for at in range(5))
    ticks = (
        tag("span", show(value), style=f"left:{100 * scale.at(value):.2f}%", class_=side)
        for value, side in zip(*_ticks(scale), strict=True)
    )
    keys = (tag("li", tag("i", class_=f"key s{at}"), line.label) for at, line in enumerate(drawn))
    hidden = len([line for line in lines if line.points]) - len(drawn)
    more = (tag("li", f"and {hidden} more, in `--json`"),) if hidden else ()
    return tag(
        "figure",
        tag("figcaption", caption),
        tag("ul", *keys, *more, class_="legend") if len(drawn) + hidden > 1 else "",
        tag("div", tag("div", *marks, class_="shares", aria_hidden="true"), plot, class_="spread"),
        tag("div", *ticks, class_="ticks", aria_hidden="true"),
        class_="cdf",
    )


def bar(found: Bar | None, scale: Scale) -> Html:
    """Return a bar on the common scale of a column; the numbers stand beside it."""
    if found is None:
        return Html("")
    left, right, mean = (100 * scale.at(value) for value in (found.least, found.most, found.mean))
    reach = tag("i", class_="reach", style=f"left:{left:.2f}%;width:{max(right - left, 0.5):.2f}%")
    return tag(
        "span", reach, tag("i", class_="mark", style=f"left:{mean:.2f}%"), class_="track", aria_hidden="true"
    )


class Scale:
    """Place of each value between 0 and 1; logarithmic scales put what is not positive at their least value."""

    def __init__(self, values: Iterable[float], *, log: bool) -> None:
        known = list(values)
        positive = [value for value in known if value > 0]
        self.log = log and bool(positive)
        self.low = min(positive) if self.log else min(known, default=0.0)
        self.high = max(known, default=1.0)

    def at(self, value: float) -> float:
        if self.high <= self.low:
            return 0.5
        if self.log:
            return math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def value(self, place: float) -> float:
        """Return the value at a place, the inverse of `at`."""
        if self.log:
            return math.exp(math.log(self.low) + place * math.log(self.high / self.low))
        return self.low + (self.high - self.low) * place


def _ticks(scale: Scale) -> tuple[list[float], list[str]]:
    """Return values to label, and the side of its place on which each text stands."""
    if scale.high <= scale.low:
        return [scale.high], ["middle"]
    places = [at / (TICKS_MAX - 1) for at in range(TICKS_MAX)]
    return [scale.value(place) for place in places], ["first", *["middle"] * (TICKS_MAX - 2), "last"]


def _steps(line: Line, scale: Scale) -> str:
    """Return a path from the first point to the last; between points, a distribution is not known and drawn straight."""
    places = [(WIDE * scale.at(value), HIGH * (1 - share)) for value, share in line.points]
    start = f"M{places[0][0]:.1f} {HIGH}"
    return start + "".join(f"L{x:.1f} {y:.1f}" for x, y in places)


def _at(line: Line, share: float) -> float:
    return next(value for value, reached in line.points if reached >= share)


def pictures(*found: Html) -> Html:
    """Return pictures beside one another where there is room."""
    return tag("div", joined(found), class_="pair")
