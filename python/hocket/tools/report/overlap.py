"""Section on overlap, and on the causes that bound a step.

It shows SketchDLC's phases, and the chain of launches that ends last.
"""

from __future__ import annotations

import msgspec

from hocket.tools.analysis.launches_path import LaunchPath, launch_path
from hocket.tools.analysis.phases import PhaseCount, Phases, marks_of_launches
from hocket.tools.formats.launches import iterations
from hocket.tools.report import quantity
from hocket.tools.report.markup import Html, Row, joined, table, tag
from hocket.tools.report.material import Material
from hocket.tools.report.section import Section, absent

NAME, QUESTION = "overlap", "How much of the communication is hidden?"

RANKS_MAX = 64
"""Limit of rows of the table; `--json` has all."""

BOUNDS_MAX = 12
"""Limit of listed links of the critical path."""


def section(material: Material) -> Section:
    """Return a table of phases by rank, and the causes that bound a step."""
    by_rank = [iterations(material.records[rank]) for rank in range(material.run.world)]
    phases = []
    for rank, found in enumerate(by_rank):
        if found:
            count = PhaseCount()
            count.add(marks_of_launches(found))
            phases.append(count.result(rank))
    known = [each for each in phases if each is not None]
    if not known:
        return absent(NAME, QUESTION, "No iteration of a program was recorded in this trace.")
    names = {program.program: program.label for program in material.run.programs if program.label}
    path = launch_path(by_rank, names)
    parts = [tag("p", WORDS), _phases(known)]
    if path is not None:
        parts.append(_bounds(path))
    numbers = {"ranks": msgspec.to_builtins(known), "critical_path": msgspec.to_builtins(path)}
    return Section(NAME, QUESTION, joined(parts), numbers=numbers)


WORDS = (
    "Phase 1 lasts until the first bucket is launched, phase 2 until the last one is, phase 3 from the first launch to the last "
    "bucket's end; the overlap ratio is 2 / (1 + 3)."
)


def _phases(known: list[Phases]) -> Html:
    head = (
        "rank",
        "computation",
        "1: pure computation",
        "2: overlapped",
        "3: communication",
        "waiting",
        "overlap ratio",
    )
    rows = []
    for each in known[:RANKS_MAX]:
        parts = (each.computation, each.pure_computation, each.overlapped, each.communication, each.waiting)
        times = (quantity.UNKNOWN if part is None else quantity.seconds(part.mean_us / 1e6) for part in parts)
        rows.append(Row((str(each.node), *times, quantity.share(each.overlap_ratio))))
    return table(head, rows, caption="Phases, mean of an iteration")


def _bounds(path: LaunchPath) -> Html:
    rows = (
        Row((each.bound, quantity.share(each.share), quantity.seconds(each.time.mean_us / 1e6)))
        for each in path.bounds[:BOUNDS_MAX]
    )
    return table(("bounded by", "share", "mean"), rows, caption="Critical path of an iteration")
