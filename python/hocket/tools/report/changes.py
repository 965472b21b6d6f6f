"""Section on the job's changes by itself: a row for each time that it measured, planned, changed its plan, kept it or left it."""

from __future__ import annotations

from hocket.artefacts.change import Change
from hocket.tools.report import quantity
from hocket.tools.report.markup import NAME_CHARACTERS_MAX, Row, clipped, joined, table, tag
from hocket.tools.report.material import Material
from hocket.tools.report.section import Section, latest

# A job measures less and less often: only one that lasts for weeks has more rows.
ROWS_MAX = 100
NAME, QUESTION = "changes", "What did the job change by itself?"

DONE = {
    "drifted": "noticed a change",
    "looked": "measured the network",
    "planned": "planned, and changed nothing",
    "adopted": "changed its plan",
    "kept": "kept the new plan",
    "left": "went back",
    "searching": "began to search",
    "searched": "ended the search",
    "refused": "did not use a schedule",
    "retreated": "retreated to a safer schedule",
}


def section(material: Material) -> Section | None:
    """Return the section; None for a job without the autopilot's changes, which has nothing to show."""
    changes = material.changes
    if not changes:
        return None
    longest = quantity.greatest(time_s for each in changes for time_s in (each.before_s, each.after_s))
    shown, caption = latest(changes, ROWS_MAX, "What the job did beside training")
    head = ("What", "Predicted", "Before", "After")
    rows = (_row(each, longest) for each in shown)
    body = joined((tag("p", _words(changes)), table(head, rows, caption=caption, class_="numbers")))
    numbers = [
        {
            "step": each.step,
            "what": each.what,
            "epoch": each.epoch,
            "label": each.label,
            "predicted_s": each.predicted_s,
            "before_s": each.before_s,
            "after_s": each.after_s,
        }
        for each in changes
    ]
    return Section(NAME, QUESTION, body, numbers=numbers)


def _row(change: Change, longest: float | None) -> Row:
    what = joined(
        (
            f"Step {change.step}: {DONE[change.what]}",
            tag("br"),
            tag("small", f"{clipped(change.label, NAME_CHARACTERS_MAX)}: {change.why}"),
        )
    )
    cells = (
        what,
        quantity.seconds(change.predicted_s, like=longest),
        quantity.seconds(change.before_s, like=longest),
        quantity.seconds(change.after_s, like=longest),
    )
    return Row(cells, "ours" if change.what == "kept" else None)


def _words(changes: tuple[Change, ...]) -> str:
    kept = [each for each in changes if each.what == "kept" and each.before_s and each.after_s]
    left = sum(each.what == "left" for each in changes)
    if not kept:
        words = "The plan that the job began with stayed."
    else:
        last = kept[-1]
        gain = (last.before_s or 0.0) / (last.after_s or 1.0)
        words = (
            f"Since step {last.step}, {last.label} has proved itself: {quantity.seconds(last.after_s)} a step, "
            f"{quantity.seconds(last.before_s)} before ({quantity.ratio(gain)})."
        )
    if retreats := sum(each.what == "retreated" for each in changes):
        words += f" {'Once' if retreats == 1 else f'{retreats} times'}, training retreated to a safer schedule of its plan."
    if left:
        words += (
            f" {left} plan{'s' if left > 1 else ''} did not prove {'themselves' if left > 1 else 'itself'}."
        )
    return words
