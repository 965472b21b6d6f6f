"""Section on how much iterations differ: computation, communication, waiting and overlap of each, as distributions by worker."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.errors import ArtefactError, UsageError
from hocket.tools.analysis.phases import Phases
from hocket.tools.analysis.summary import Summary
from hocket.tools.report import quantity
from hocket.tools.report.markup import Html
from hocket.tools.report.material import Material
from hocket.tools.report.section import Section, absent
from hocket.tools.report.spreads import Line, distribution, pictures

NAME, QUESTION = "iterations", "How much do iterations differ?"

KINDS = {
    "computation": "Computation: share of iterations that take at most",
    "communication": "Communication: share of iterations that take at most",
    "waiting": "Waiting, first to last pull: share of iterations that take at most",
}


def section(material: Material) -> Section:
    """Return a distribution per phase, a line per worker."""
    try:
        phases = material.analysis.phases
    except (UsageError, ArtefactError) as error:
        return absent(NAME, QUESTION, str(error).partition("\n")[0])
    if not phases:
        return absent(NAME, QUESTION, "No iteration of training is whole in this trace.")
    drawn = [_times(phases, kind, caption) for kind, caption in KINDS.items()]
    ratios = [Line(_label(each), [(at.ratio, at.share) for at in each.overlap_cdf]) for each in phases]
    caption = "Overlap ratio: share of iterations that overlap at most"
    drawn.append(distribution(caption, ratios, quantity.share, log=False))
    # The numbers are those of the section on overlap.
    return Section(NAME, QUESTION, pictures(*(picture for picture in drawn if picture)))


def _times(phases: Sequence[Phases], kind: str, caption: str) -> Html:
    lines = []
    for each in phases:
        found: Summary | None = getattr(each, kind)
        points = [(at.us / 1e6, at.share) for at in found.cdf_us] if found else []
        lines.append(Line(_label(each), points))
    return distribution(caption, lines, quantity.seconds)


def _label(each: Phases) -> str:
    return f"worker {each.node}"
