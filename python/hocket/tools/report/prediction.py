"""Section on the accuracy of predictions: predicted against measured step time of every candidate that the planner scored."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from hocket.artefacts.plan import Candidate
from hocket.tools.report import quantity
from hocket.tools.report.markup import Row, clipped, joined, table, tag
from hocket.tools.report.material import Material
from hocket.tools.report.section import Section, absent
from hocket.tools.report.step_parts import step_times

# The best candidates by prediction; the order of the others no longer matters to a choice.
ROWS_MAX = 40
# A label is a few words; a longer one would push the bars off the page.
LABEL_CHARACTERS_MAX = 200
NAME, QUESTION = "prediction", "Was the prediction right?"


def section(material: Material) -> Section:
    """Return a bar of the predicted time per candidate, with a mark at the measured time."""
    chosen = material.run.plan.label if material.run.plan else None
    candidates = sorted(_with_this_run(material, chosen), key=lambda c: c.predicted_step_s)
    if not candidates:
        return absent(
            NAME, QUESTION, "No candidates were scored: `hocket plan` stores what it predicted in the plan."
        )
    shown = candidates[:ROWS_MAX]
    shown += [c for c in candidates[ROWS_MAX:] if c.label == chosen]
    longest = max(max(c.predicted_step_s, c.measured_step_s or 0.0) for c in shown) or 1.0
    caption = "Step time of the candidates, best prediction first"
    if len(shown) < len(candidates):
        caption += f" ({len(shown)} of {len(candidates)})"
    head = ("Candidate", "Predicted (bar) and measured (mark)", "Predicted", "Measured", "Error")
    rows = (_row(c, longest, chosen) for c in shown)
    body = joined(
        (
            tag("p", _verdict(candidates, chosen)),
            table(head, rows, caption=caption, class_="numbers candidates"),
        )
    )
    numbers = [
        {
            "label": c.label,
            "predicted_step_s": c.predicted_step_s,
            "measured_step_s": c.measured_step_s,
            "error": error(c),
            "chosen": c.label == chosen,
        }
        for c in candidates
    ]
    return Section(NAME, QUESTION, body, numbers=numbers)


def error(candidate: Candidate) -> float | None:
    """Return (predicted - measured) / measured; None when it was not measured."""
    if not candidate.measured_step_s:
        return None
    return (candidate.predicted_step_s - candidate.measured_step_s) / candidate.measured_step_s


def _with_this_run(material: Material, chosen: str | None) -> list[Candidate]:
    """Return the candidates; the chosen one's measured time is this run's unless a comparison measured it."""
    steps = step_times(material)
    # Plans know nothing of loading.
    own = median(r.step_s - (r.loading_s or 0.0) for r in steps) if steps else None
    return [
        Candidate(label=c.label, predicted_step_s=c.predicted_step_s, measured_step_s=own)
        if c.label == chosen and c.measured_step_s is None
        else c
        for c in material.candidates
    ]


def _verdict(candidates: Sequence[Candidate], chosen: str | None) -> str:
    errors = [abs(e) for c in candidates if (e := error(c)) is not None]
    if not errors:
        return "None of the candidates was measured."
    words = f"{len(errors)} of {len(candidates)} candidates were measured; "
    words += f"the median error is {quantity.share(median(errors))}."
    measured = {c.label: c.measured_step_s for c in candidates if c.measured_step_s}
    if len(measured) > 1 and chosen in measured:
        best = min(measured, key=lambda label: measured[label])
        behind = measured[chosen] / measured[best] - 1
        words += (
            " The chosen plan is the fastest of those measured."
            if best == chosen
            else f" The chosen plan is {quantity.share(behind)} slower than the fastest measured, {best}."
        )
    return words


def _row(candidate: Candidate, longest: float, chosen: str | None) -> Row:
    measured, off = candidate.measured_step_s, error(candidate)
    is_chosen = candidate.label == chosen
    badge = tag("em", "chosen", class_="badge") if is_chosen else ""
    bar = tag("i", class_="bar", style=f"width:{100 * candidate.predicted_step_s / longest:.2f}%")
    mark = tag("b", class_="mark", style=f"left:{100 * measured / longest:.2f}%") if measured else ""
    cells = (
        tag("span", clipped(candidate.label, LABEL_CHARACTERS_MAX), badge),
        tag("span", bar, mark, class_="track", aria_hidden="true"),
        quantity.seconds(candidate.predicted_step_s, like=longest),
        quantity.seconds(measured, like=longest),
        quantity.UNKNOWN if off is None else f"{100 * off:+.1f}{quantity.NARROW_SPACE}%",
    )
    return Row(cells, "ours" if is_chosen else None)
