"""Section on what the ranks of a running job do now, as they report it: the page's answer to whom the others wait for."""

from __future__ import annotations

from hocket.job.live.observer import View
from hocket.tools.report import quantity
from hocket.tools.report.markup import NAME_CHARACTERS_MAX, Html, Row, clipped, joined, table, tag
from hocket.tools.report.section import Section
from hocket.tools.top.table import ORDERS, rate_byte_per_s, sorted_ranks, state

NAME, QUESTION = "now", "What do the ranks do now?"
# As in the table of a step's parts.
ROWS_MAX = 32
HEAD = ("Rank", "Does", "Steps", "Step", "Waits for ranks", "For the network", "Loading", "Sends", "Memory")


def section(view: View) -> Section:
    """Return a row per rank, the one for which the others wait first."""
    if not view.ranks:
        return Section(NAME, QUESTION, tag("p", "No rank has reported yet.", class_="absent"))
    ranks = sorted_ranks(view, ORDERS[0])
    blamed = None if view.blame is None else view.blame.rank
    rows = (Row(_cells(view, rank), "ours" if rank == blamed else None) for rank in ranks[:ROWS_MAX])
    caption = "Medians of the latest steps, as each rank reports them once a second"
    if len(ranks) > ROWS_MAX:
        caption += f", of the first {ROWS_MAX} of {len(ranks)} ranks"
    return Section(
        NAME, QUESTION, joined((_blame(view), table(HEAD, rows, caption=caption, class_="numbers")))
    )


def _blame(view: View) -> Html:
    if view.blame is None:
        return Html("")
    return tag("p", view.blame.why[:1].upper() + view.blame.why[1:] + ".", class_="note")


def _cells(view: View, rank: int) -> tuple[str, ...]:
    seen = view.ranks[rank]
    status = seen.status
    return (
        f"rank {rank} on {clipped(status.host, NAME_CHARACTERS_MAX)}",
        state(view, rank),
        f"{status.steps:,}",
        quantity.seconds(status.step_s),
        quantity.seconds(view.waits_for_others_s(rank)),
        quantity.seconds(None if status.wait_s is None else view.network_s),
        quantity.seconds(status.loading_s),
        f"{quantity.size(rate_byte_per_s(seen))}/s" if status.sent else quantity.UNKNOWN,
        quantity.size(status.resident_bytes),
    )
