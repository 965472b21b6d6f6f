"""Section on what ranks took of their machines: memory, and processors that they kept busy."""

from __future__ import annotations

from hocket.artefacts.usage import busy_cores
from hocket.tools.report import quantity
from hocket.tools.report.markup import Row, table
from hocket.tools.report.material import Material
from hocket.tools.report.section import Section, absent

NAME, QUESTION = "usage", "What did it take of the machines?"
# As in the table of a step's parts; those with most memory are shown, which run out of it first.
ROWS_MAX = 32


def section(material: Material) -> Section:
    """Return a row per rank; one line where nothing was noted."""
    found = {rank: looks for rank, looks in enumerate(material.usage) if looks}
    if not found:
        return absent(
            NAME, QUESTION, "Memory and processor use are in traces that `hocket run --trace` writes."
        )
    shown = sorted(sorted(found, key=lambda rank: -found[rank][-1].most_bytes)[:ROWS_MAX])
    greatest = quantity.greatest(found[rank][-1].most_bytes for rank in shown)
    rows = []
    for rank in shown:
        last = found[rank][-1]
        rows.append(
            Row(
                (
                    f"rank {rank} on {material.host(rank)}",
                    quantity.size(last.resident_bytes, like=greatest),
                    quantity.size(last.most_bytes, like=greatest),
                    _cores(busy_cores(found[rank])),
                    str(last.cores),
                )
            )
        )
    caption = "Memory of each rank's process, and processors that it kept busy on average"
    if len(shown) < len(found):
        caption += f", of the {len(shown)} ranks with most memory of {len(found)}"
    head = (
        "Rank",
        "Memory now" if material.runs else "Memory at the end",
        "At most",
        "Processors busy",
        "It may use",
    )
    numbers = [
        {
            "rank": rank,
            "resident_bytes": looks[-1].resident_bytes,
            "most_bytes": looks[-1].most_bytes,
            "busy_cores": busy_cores(looks),
            "cores": looks[-1].cores,
        }
        for rank, looks in found.items()
    ]
    return Section(NAME, QUESTION, table(head, rows, caption=caption, class_="numbers"), numbers=numbers)


def _cores(busy: float | None) -> str:
    return quantity.UNKNOWN if busy is None else f"{busy:.2f}"
