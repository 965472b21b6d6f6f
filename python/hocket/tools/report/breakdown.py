"""Section on the parts of a step: medians per rank of forward, backward, waiting and optimizer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from msgspec import Struct, structs

from hocket.tools.report import quantity
from hocket.tools.report.markup import Html, Row, joined, table, tag
from hocket.tools.report.material import BACKWARD, FORWARD, OPTIMIZER, STEP, WAIT, Material
from hocket.tools.report.section import Section, absent

# More bars than this are unreadable; the slowest ranks are shown, which matter most then.
ROWS_MAX = 32
NAME, QUESTION = "breakdown", "Where does a step's time go?"
PHASES = (("forward", FORWARD), ("backward", BACKWARD), ("wait", WAIT), ("optimizer", OPTIMIZER))


class StepTimes(Struct, frozen=True, kw_only=True):
    """Median step of one rank, seconds; a phase without records is None."""

    rank: int
    host: str
    steps: int
    step_s: float
    forward_s: float | None
    backward_s: float | None
    wait_s: float | None
    optimizer_s: float | None

    @property
    def wait_share(self) -> float | None:
        return self.wait_s / self.step_s if self.wait_s is not None and self.step_s > 0 else None


def section(material: Material) -> Section:
    """Return a table with a bar per rank."""
    found = rows(material)
    if not found:
        return absent(NAME, QUESTION, "No steps were recorded in this trace.")
    shown = sorted(sorted(found, key=lambda r: -r.step_s)[:ROWS_MAX], key=lambda r: r.rank)
    head = ("Rank", "Median step", "Step", "Forward", "Backward", "Waiting", "Optimizer", "Share waiting")
    caption = f"Median over {max(r.steps for r in shown)} steps"
    if len(shown) < len(found):
        caption += f", the {len(shown)} slowest of {len(found)} ranks"
    body = joined(
        (
            tag("ul", *phase_keys(), class_="legend"),
            table(head, (_row(r, shown) for r in shown), caption=caption, class_="numbers breakdown"),
        )
    )
    return Section(
        NAME, QUESTION, body, numbers=[{**structs.asdict(r), "wait_share": r.wait_share} for r in found]
    )


def rows(material: Material) -> list[StepTimes]:
    return list(_rows(material))


def phase_keys() -> list[Html]:
    """The colours of the phases, shared with the timeline."""
    return [tag("li", tag("i", class_=f"key {name}"), name) for name, _ in PHASES]


def _rows(material: Material) -> Iterator[StepTimes]:
    for rank in material.ranks:
        steps = material.of_kind(rank, STEP)
        if not len(steps):
            continue
        medians = {f"{name}_s": _median_s(material, rank, kind, len(steps)) for name, kind in PHASES}
        step_s = float(np.median(steps["end_ns"] - steps["start_ns"])) / 1e9
        yield StepTimes(rank=rank, host=material.host(rank), steps=len(steps), step_s=step_s, **medians)


def _median_s(material: Material, rank: int, kind: int, steps: int) -> float | None:
    """Median per step; a phase that occurs several times in a step (accumulation) is summed first."""
    spans = material.of_kind(rank, kind)
    if not len(spans):
        return None
    took = (spans["end_ns"] - spans["start_ns"]).astype(np.float64)
    _, where = np.unique(spans["instance"], return_inverse=True)
    return float(np.median(np.bincount(where, took)[:steps])) / 1e9


def _row(r: StepTimes, shown: list[StepTimes]) -> Row:
    parts = []
    longest = max(other.step_s for other in shown) or 1.0
    for name, _ in PHASES:
        value = getattr(r, f"{name}_s") or 0.0
        parts.append(tag("i", class_=name, style=f"width:{100 * value / longest:.2f}%"))
    cells = (
        tag("span", str(r.rank), " ", tag("small", r.host)),
        tag("span", *parts, class_="stack", aria_hidden="true"),
        quantity.seconds(r.step_s, like=longest),
        *(quantity.seconds(getattr(r, f"{name}_s"), like=longest) for name, _ in PHASES),
        quantity.share(r.wait_share),
    )
    return Row(cells)
