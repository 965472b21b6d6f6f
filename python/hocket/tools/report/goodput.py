"""Section on goodput: how much of the work of an elastic job's ranks counted, and what became of the rest."""

from __future__ import annotations

import msgspec

from hocket.tools.report import quantity
from hocket.tools.report.markup import Row, joined, table, tag
from hocket.tools.report.material import Material
from hocket.tools.report.section import Section

NAME, QUESTION = "goodput", "How much of the work counted?"

LOST = {
    "standing_still": (
        "Standing still after losses",
        "from the last step with a lost rank until the others go on",
    ),
    "done_again": ("Work done again", "what an interrupted step had already taken"),
    "joining": ("Joining", "meetings with newcomers, and slower steps while they take the state"),
    "leaving": ("Leaving", "steps after which ranks left in order"),
    "too_few_ranks": ("Waiting for enough ranks", "until others had joined"),
}
"""Causes of `Lost`: what they are called, and what they are."""


def section(material: Material) -> Section | None:
    """Return the section; None for a job that is not elastic, or of which nothing is known."""
    found = material.goodput
    if found is None:
        return None
    lost = msgspec.structs.asdict(found.lost)
    rows = [
        Row(
            (
                _named("In steps that stand", "what all ranks have"),
                *_cells(found.committed, found.undisturbed),
            )
        ),
        *(
            Row((_named(*LOST[cause]), *_cells(work, found.undisturbed)))
            for cause, work in lost.items()
            if work
        ),
    ]
    head = ("What", found.unit.capitalize(), "Share")
    words = (
        f"Goodput was {_percent(found.share)}: {quantity.digits(found.committed)} {found.unit} stand, of "
        f"{quantity.digits(found.undisturbed)} that the same ranks would have made in this time if nothing had changed. As many "
        f"ranks as at the start, all the time, would have made {quantity.digits(found.all_along)}: the job made "
        f"{_percent(found.share_of_all)} of that, in {quantity.seconds(found.time_s)} and {found.steps} steps."
    )
    body = joined((tag("p", words), table(head, rows, caption="Work of the job's ranks", class_="numbers")))
    numbers = {**msgspec.to_builtins(found), "share": found.share, "share_of_all": found.share_of_all}
    return Section(NAME, QUESTION, body, numbers=numbers)


def _named(name: str, meaning: str) -> str:
    return joined((name, tag("br"), tag("small", meaning)))


def _cells(work: float, of: float) -> tuple[str, str]:
    return quantity.digits(work), _percent(work / of)


def _percent(value: float) -> str:
    """Return a fraction with a decimal: the last percents are what can be mended."""
    return f"{100 * value:.1f}{quantity.NARROW_SPACE}%"
