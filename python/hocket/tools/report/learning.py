"""Section on learning, equal or sooner: loss over steps, and over seconds, a line per strategy."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.tools.report import quantity
from hocket.tools.report.comparison import STRATEGIES_MAX, colour
from hocket.tools.report.markup import Html, Row, data, joined, table, tag
from hocket.tools.report.material import Material, number
from hocket.tools.report.section import Section, absent

# About one point per pixel of the widest chart; a longer line would only make the page heavier.
LINE_POINTS_MAX = 600
TABLE_ROWS_MAX = 9
NAME, QUESTION, ALONE = "learning", "Does it learn the same, and how much sooner?", "Does it learn?"

Line = tuple[str, int, list[tuple[int, float, float | None]]]


def section(material: Material) -> Section:
    """Return the section, from the comparison's losses, otherwise from this run's metrics."""
    compared = _compared(material)
    lines = compared or _logged(material)
    if not lines:
        return absent(NAME, ALONE, "No losses were logged: `hk.log(model, loss=…)` logs one.")
    series = [
        {
            "label": label,
            "colour": hue,
            "points": [[step, loss, time] for step, loss, time in decimated(points)],
        }
        for label, hue, points in lines
    ]
    legend = tag(
        "ul", *(tag("li", tag("i", class_=f"key s{hue}"), label) for label, hue, _ in lines), class_="legend"
    )
    charts = tag(
        "div", _chart("steps", "Loss over steps"), _chart("seconds", "Loss over seconds"), class_="pair"
    )
    body = joined((legend, charts, _table(lines), data("learning-data", series)))
    numbers = [
        {"label": label, "steps": points[-1][0] + 1, "seconds": points[-1][2], "loss": points[-1][1]}
        for label, _, points in lines
    ]
    return Section(NAME, QUESTION if compared else ALONE, body, numbers=numbers)


def decimated(points: Sequence[tuple[int, float, float | None]]) -> list[tuple[int, float, float | None]]:
    """Return at most LINE_POINTS_MAX points: lowest and highest of each run of neighbours, so no spike is lost."""
    if len(points) <= LINE_POINTS_MAX:
        return list(points)
    bins = LINE_POINTS_MAX // 2
    kept = []
    for index in range(bins):
        some = points[len(points) * index // bins : len(points) * (index + 1) // bins]
        kept += sorted({min(some, key=lambda p: p[1]), max(some, key=lambda p: p[1])})
    return kept


def _compared(material: Material) -> list[Line]:
    comparison = material.comparison
    if comparison is None:
        return []
    lines = []
    for index, strategy in enumerate(comparison.strategies[:STRATEGIES_MAX]):
        times = (*strategy.times_s, *(None,) * len(strategy.losses))
        points = [
            (step, loss, times[step])
            for step, value in enumerate(strategy.losses)
            if (loss := number(value)) is not None
        ]
        if points:
            lines.append((strategy.label, colour(strategy, index, comparison), points))
    return lines


def _logged(material: Material) -> list[Line]:
    """Return the mean over ranks of their logged `loss`; times are those of the first rank that logged."""
    losses: dict[int, list[float]] = {}
    times: dict[int, float | None] = {}
    for rows in material.metrics:
        for position, logged in enumerate(rows):
            step, loss = number(logged.get("step", position)), number(logged.get("loss"))
            if step is None or loss is None:
                continue
            losses.setdefault(int(step), []).append(loss)
            times.setdefault(int(step), number(logged.get("time_s")))
    points = [(step, sum(losses[step]) / len(losses[step]), times[step]) for step in sorted(losses)]
    return [("This run, mean over ranks", 0, points)] if points else []


def _chart(name: str, title: str) -> Html:
    return tag(
        "figure", tag("figcaption", title), tag("div", class_="chart", data_line=name, data_title=title)
    )


def _table(lines: list[Line]) -> Html:
    """Return a few rows of the same values, for readers without JavaScript and for copying."""
    steps = sorted({step for _, _, points in lines for step, _, _ in points})
    picked = sorted({steps[(len(steps) - 1) * i // (TABLE_ROWS_MAX - 1)] for i in range(TABLE_ROWS_MAX)})
    longest = quantity.greatest(time for _, _, points in lines for _, _, time in points)
    by_label = [(label, {step: (loss, time) for step, loss, time in points}) for label, _, points in lines]
    rows = []
    for step in picked:
        cells = []
        for _, points in by_label:
            loss, time = points.get(step, (None, None))
            at = tag("small", f"at {quantity.seconds(time, like=longest)}")
            cells.append(tag("span", quantity.digits(loss, 4), " ", at))
        rows.append(Row((str(step), *cells)))
    shown = table(
        ("Step", *(label for label, _ in by_label)), rows, caption="Loss at some steps", class_="numbers"
    )
    return tag("details", tag("summary", "The values as a table"), shown)
