"""Section on members lost, left or joined: a row for each change of an elastic job's members, and its cost to the others."""

from __future__ import annotations

from collections import Counter

import msgspec

from hocket.artefacts.members_change import MembersChange
from hocket.tools.report import quantity
from hocket.tools.report.markup import NAME_CHARACTERS_MAX, Row, clipped, joined, table, tag
from hocket.tools.report.material import Material
from hocket.tools.report.section import Section, latest

# A job on preemptible machines may change for days.
ROWS_MAX = 100
TIMES = {1: "once", 2: "twice"}
DONE = {"lost": "were lost", "left": "left", "joined": "joined"}
NAME, QUESTION = "members", "Who was lost, left or joined?"


def section(material: Material) -> Section | None:
    """Return the section; None for a job whose ranks stayed the same."""
    changes = material.members_changes
    if not changes:
        return None
    longest = quantity.greatest(time_s for each in changes for time_s in (each.decided_s, each.stopped_s))
    shown, caption = latest(changes, ROWS_MAX, "Changes of the job's ranks")
    head = ("What", "Ranks then", "Decided after", "Stood still")
    rows = (_row(each, longest) for each in shown)
    body = joined((tag("p", _words(changes)), table(head, rows, caption=caption, class_="numbers")))
    return Section(NAME, QUESTION, body, numbers=[msgspec.to_builtins(each) for each in changes])


def _row(change: MembersChange, longest: float | None) -> Row:
    notes = [] if change.noticed is None else [clipped(change.noticed, NAME_CHARACTERS_MAX)]
    if change.step is not None:
        notes.append(f"the others went on from step {change.step}")
    notes.append("one step was reduced again" if change.again else "nothing was done again")
    who = clipped(change.who, NAME_CHARACTERS_MAX)
    what = joined((f"Epoch {change.epoch}, {change.what}: {who}", tag("br"), tag("small", "; ".join(notes))))
    cells = (
        what,
        str(change.ranks),
        quantity.seconds(change.decided_s, like=longest),
        quantity.seconds(change.stopped_s, like=longest),
    )
    return Row(cells)


def _words(changes: tuple[MembersChange, ...]) -> str:
    counts = Counter[str](each.what for each in changes)
    parts = [
        f"{done} {TIMES.get(counts[what], f'{counts[what]} times')}"
        for what, done in DONE.items()
        if counts[what]
    ]
    stood_s = sum(each.stopped_s or 0.0 for each in changes)
    return f"Ranks {', '.join(parts)}. Training stood still for {quantity.seconds(stood_s)} in all."
