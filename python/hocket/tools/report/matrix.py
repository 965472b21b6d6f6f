"""Heat map that is also readable as text: a square of numbers as a table whose cells are coloured by magnitude."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from hocket.tools.report.markup import NAME_CHARACTERS_MAX, Html, captioned, clipped, joined, tag

# A wider square has cells too small to read; the first hosts are shown and the caption says so.
SIDE_MAX = 24
# Opacity of the strongest cell: text in the page's own colour keeps a contrast of 4.5, light and dark.
SHADE_MAX = 0.7


def heat_map(
    values: Sequence[Sequence[float]],
    names: Sequence[str],
    racks: Sequence[str | None],
    *,
    caption: str,
    show: Callable[[float], str],
    diagonal: bool = False,
    tone: str = "",
) -> Html:
    """Return the heat map of `values[source][destination]`; `show` formats a number with its unit.

    The diagonal is not coloured, and is left blank unless `diagonal`. Colour is logarithmic: networks differ by orders
    of magnitude. `tone` is a class of the style.
    """
    side = min(len(names), SIDE_MAX)
    if side < len(names):
        caption += f" (the first {side} of {len(names)})"
    intensity = _scale([values[a][b] for a in range(side) for b in range(side) if a != b])
    rows = []
    for a in range(side):
        cells = []
        for b in range(side):
            if a == b:
                cells.append(tag("td", show(values[a][b]) if diagonal else "", class_="diagonal"))
            else:
                shade = f"--t:{intensity(values[a][b]):.2f}"
                cells.append(tag("td", show(values[a][b]), style=shade))
        rows.append(tag("tr", tag("th", label(names[a], racks[a], racks), scope="row"), *cells))
    head = (tag("th", label(names[b], racks[b], racks), scope="col") for b in range(side))
    corner = tag("th", "from \\ to", scope="col")
    return captioned(tag("tr", corner, *head), rows, caption=caption, class_=f"heat {tone}")


def label(name: str, rack: str | None, racks: Sequence[str | None]) -> Html:
    """Return a host with its rack below, in the rack's colour."""
    shown = tag("span", clipped(name, NAME_CHARACTERS_MAX))
    if rack is None:
        return shown
    return joined(
        (shown, tag("small", clipped(rack, NAME_CHARACTERS_MAX), class_=f"rack r{rack_number(rack, racks)}"))
    )


def rack_number(rack: str | None, racks: Sequence[str | None]) -> int:
    """Return the number of a rack's colour, of six: racks in order of first appearance."""
    return list(dict.fromkeys(racks)).index(rack) % 6


def _scale(values: Sequence[float]) -> Callable[[float], float]:
    """Return a function from a value to 0.14 to SHADE_MAX, logarithmic between the least and the greatest value."""
    logs = [math.log(value) for value in values if value > 0 and math.isfinite(value)]
    low, high = min(logs, default=0.0), max(logs, default=0.0)

    def intensity(value: float) -> float:
        if not (value > 0 and math.isfinite(value)):
            return 0.0
        # Values within 20 % of each other have one shade: noise must not look like structure.
        if high - low < math.log(1.2):
            return 0.3
        return 0.14 + (SHADE_MAX - 0.14) * (math.log(value) - low) / (high - low)

    return intensity
