"""Section on the search: a row for each plan that was on trial: predicted, measured, and the best so far."""

from __future__ import annotations

from statistics import median

from hocket.tools.analysis.searches import Search, Trial, searches
from hocket.tools.report import quantity
from hocket.tools.report.markup import NAME_CHARACTERS_MAX, Html, Row, clipped, joined, table, tag
from hocket.tools.report.material import Material
from hocket.tools.report.section import Section, latest

ROWS_MAX = 200
"""Limit of rows: AutoDist's budget of trials."""
NAME, QUESTION = "search", "What did the search find?"


def section(material: Material) -> Section | None:
    """Return the section; None for a job that did not search."""
    found = searches(material.changes)
    if not found:
        return None
    body = joined(part for each in found for part in (tag("p", _words(each)), _table(each)))
    return Section(NAME, QUESTION, body, numbers=[_numbers(each) for each in found])


def _words(search: Search) -> str:
    best, hits = search.best, search.hits
    if not search.trials or hits is None:
        words = "Nothing was on trial."
    elif best is None:
        words = f"None of {len(search.trials)} plans was faster than {search.label}, with which it began."
    else:
        words = (
            f"Of {len(search.trials)} plans on trial, {best.label} is the fastest: {quantity.seconds(best.measured_s)} a step, "
            f"{quantity.seconds(search.first_s)} before ({quantity.ratio(search.first_s / best.measured_s)}). "
            f"{quantity.share(hits)} of the trials were faster than the plan that the search began with."
        )
    if search.errors:
        off = median(abs(each) for each in search.errors)
        words += f" The median error of predictions is {quantity.share(off)}."
    ended = "It goes on." if search.ended is None else f"It ended at step {search.last}: {search.ended}."
    return f"{words} {ended}"


def _table(search: Search) -> Html:
    trials, caption = latest(search.trials, ROWS_MAX, "Trials, in order")
    longest = max((each.measured_s for each in trials), default=search.first_s)
    head = ("Plan", "Best so far (bar) and this trial (mark)", "Predicted", "Measured", "Best so far")
    rows = (_row(each, longest) for each in trials)
    return table(head, rows, caption=caption, class_="numbers candidates")


def _row(trial: Trial, longest: float) -> Row:
    bar = tag("i", class_="bar", style=f"width:{100 * trial.best_s / longest:.2f}%")
    mark = tag("b", class_="mark", style=f"left:{100 * trial.measured_s / longest:.2f}%")
    badge = tag("em", "kept", class_="badge") if trial.kept else ""
    what = tag(
        "span", clipped(trial.label, NAME_CHARACTERS_MAX), " ", tag("small", f"step {trial.step}"), badge
    )
    cells = (
        what,
        tag("span", bar, mark, class_="track", aria_hidden="true"),
        quantity.seconds(trial.predicted_s, like=longest),
        quantity.seconds(trial.measured_s, like=longest),
        quantity.seconds(trial.best_s, like=longest),
    )
    return Row(cells, "ours" if trial.kept else None)


def _numbers(search: Search) -> dict[str, object]:
    return {
        "began": search.began,
        "first_s": search.first_s,
        "ended": search.ended,
        "last": search.last,
        "hits": search.hits,
        "trials": [
            {
                "step": each.step,
                "label": each.label,
                "predicted_s": each.predicted_s,
                "measured_s": each.measured_s,
                "error_s": each.error_s,
                "kept": each.kept,
                "best_s": each.best_s,
            }
            for each in search.trials
        ],
    }
