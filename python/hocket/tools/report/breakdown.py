"""Section on the parts of a step: medians per rank of loading, forward, backward, waiting, optimizer; and who is last."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from hocket.planning.shares import Suggested, suggested
from hocket.tools.report import quantity
from hocket.tools.report.markup import Html, Row, joined, table, tag
from hocket.tools.report.material import Material
from hocket.tools.report.section import Section, absent
from hocket.tools.report.step_parts import Last, StepTimes, last_rank, step_times

# More bars than this are unreadable; the slowest ranks are shown, which matter most then.
ROWS_MAX = 32
NAME, QUESTION = "breakdown", "Where does a step's time go?"
PARTS = {
    "loading": "Loading",
    "forward": "Forward",
    "backward": "Backward",
    "for_ranks": "Waiting for ranks",
    "for_network": "Waiting for the network",
    "optimizer": "Optimizer",
}
"""Titles of parts, in the order in which they come; each is a colour's class, too."""
WHOLE_WAIT = {
    "loading": "Loading",
    "forward": "Forward",
    "backward": "Backward",
    "wait": "Waiting",
    "optimizer": "Optimizer",
}
"""Parts where it is not known for what ranks wait."""


def section(material: Material) -> Section:
    """Return a table with a bar per rank."""
    found = step_times(material)
    if not found:
        return absent(NAME, QUESTION, "No steps were recorded in this trace.")
    last = last_rank(material, found)
    shares = None if last is None else _shares(last, found)
    shown = sorted(sorted(found, key=lambda r: -r.step_s)[:ROWS_MAX], key=lambda r: r.rank)
    parts = PARTS if any(row.for_ranks_s is not None for row in found) else WHOLE_WAIT
    head = ("Rank", "Median step", "Step", *parts.values(), "Share waiting")
    caption = f"Median over {max(r.steps for r in shown)} steps"
    if len(shown) < len(found):
        caption += f", the {len(shown)} slowest of {len(found)} ranks"
    keys = [tag("li", tag("i", class_=f"key {name}"), title.lower()) for name, title in parts.items()]
    body = joined(
        (
            tag("p", _words(last)) if last is not None else "",
            tag("p", shares.said()) if shares is not None else "",
            tag("ul", *keys, class_="legend"),
            table(head, (_row(r, shown, parts) for r in shown), caption=caption, class_="numbers breakdown"),
        )
    )
    rows = [
        {**structs.asdict(r), "for_network_s": r.for_network_s, "wait_share": r.wait_share} for r in found
    ]
    return Section(NAME, QUESTION, body, numbers={"ranks": rows, "last": last, "shares": shares})


def _shares(last: Last, rows: Sequence[StepTimes]) -> Suggested | None:
    """Return the shares of batches for ranks that compute unequally long, if the last one is last by that."""
    computed = [(each.forward_s, each.backward_s) for each in rows]
    if last.part not in ("forward", "backward") or any(None in each for each in computed):
        return None
    whole = [(forward or 0.0) + (backward or 0.0) for forward, backward in computed]
    return suggested(whole, [None] * len(whole))


def _words(last: Last) -> str:
    return (
        f"Rank {last.rank} on {last.host} is last in {quantity.share(last.share)} of the steps, by "
        f"{quantity.seconds(last.by_s)}: its {last.part} takes {quantity.seconds(last.own_s)}, the others' "
        f"{quantity.seconds(last.others_s)}."
    )


def _row(r: StepTimes, shown: list[StepTimes], parts: dict[str, str]) -> Row:
    longest = max(other.step_s for other in shown) or 1.0
    bars: list[Html] = []
    for name in parts:
        value = getattr(r, f"{name}_s") or 0.0
        bars.append(tag("i", class_=name, style=f"width:{100 * value / longest:.2f}%"))
    cells = (
        tag("span", str(r.rank), " ", tag("small", r.host)),
        tag("span", *bars, class_="stack", aria_hidden="true"),
        quantity.seconds(r.step_s, like=longest),
        *(quantity.seconds(getattr(r, f"{name}_s"), like=longest) for name in parts),
        quantity.share(r.wait_share),
    )
    return Row(cells)
