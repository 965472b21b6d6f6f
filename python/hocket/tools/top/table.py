"""Running job as a table for a terminal: a row for each rank. Pure: from a view of the job to what rich prints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hocket.job.live.blame import is_silent
from hocket.job.live.observer import Seen, View

NONE = "-"

Key = Callable[[View, int], float]


@dataclass(frozen=True, kw_only=True)
class Order:
    """Order of rows: `key` of the keyboard, what it sorts by, and whether the largest value comes first."""

    key: str
    name: str
    by: Key
    largest_first: bool = True


ORDERS = (
    Order(key="r", name="rank", by=lambda _, rank: rank, largest_first=False),
    Order(key="s", name="steps", by=lambda view, rank: view.ranks[rank].status.steps, largest_first=False),
    Order(key="t", name="step time", by=lambda view, rank: view.ranks[rank].status.step_s or 0.0),
    Order(
        key="w", name="wait", by=lambda view, rank: view.ranks[rank].status.wait_s or 0.0, largest_first=False
    ),
    Order(key="l", name="loading", by=lambda view, rank: view.ranks[rank].status.loading_s or 0.0),
    Order(key="b", name="rate", by=lambda view, rank: rate_byte_per_s(view.ranks[rank])),
    Order(key="m", name="memory", by=lambda view, rank: view.ranks[rank].status.resident_bytes),
)
"""Ranks that wait least come first: the others wait for them."""


def rate_byte_per_s(seen: Seen) -> float:
    """Return the rate at which a rank sends, to all peers together."""
    return sum(each.byte_per_s for each in seen.status.sent)


def sorted_ranks(view: View, order: Order) -> list[int]:
    """Return the ranks in that order, the one for which others wait first."""
    blamed = None if view.blame is None else view.blame.rank
    sign = -1.0 if order.largest_first else 1.0
    return sorted(view.ranks, key=lambda rank: (rank != blamed, sign * order.by(view, rank), rank))


def state(view: View, rank: int) -> str:
    """Return what a rank does, in a word or two."""
    if rank in view.gone:
        return "left" if view.gone[rank].fault is None else "lost"
    seen = view.ranks[rank]
    if is_silent(seen.age_s, seen.status):
        return f"silent {seen.age_s:.0f} s"
    return seen.status.doing


def rendered(
    view: View, order: Order, *, rows_max: int | None = None, selected: int | None = None, title: str = ""
) -> RenderableType:
    """Return the view. `rows_max`: rows for which there is room; those around the `selected` rank are shown."""
    ranks = sorted_ranks(view, order)
    shown = _window(ranks, selected, rows_max)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1))
    for name in ("rank", "host"):
        table.add_column(name, no_wrap=True)
    table.add_column("does", no_wrap=True)
    for name in (
        "steps",
        "step",
        "wait: ranks",
        "network",
        "loading",
        "sends/s",
        "most to",
        "epoch",
        "memory",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for rank in shown:
        table.add_row(*_row(view, rank), style=_style(view, rank, selected))
    parts: list[RenderableType] = [Text(title, style="bold")] if title else []
    parts += [Text.from_markup(_facts(view)), table]
    if len(shown) < len(ranks):
        parts.append(Text(f"{len(shown)} of {len(ranks)} ranks, by {order.name}", style="dim"))
    if view.blame is not None:
        parts.append(Text(view.blame.why, style="bold red"))
    return Group(*parts)


def _window(ranks: list[int], selected: int | None, rows_max: int | None) -> list[int]:
    if rows_max is None or len(ranks) <= rows_max:
        return ranks
    at = ranks.index(selected) if selected in ranks else 0
    start = min(max(0, at - rows_max // 2), len(ranks) - rows_max)
    return ranks[start : start + rows_max]


def _row(view: View, rank: int) -> list[str]:
    seen = view.ranks[rank]
    status = seen.status
    most = max(status.sent, key=lambda each: each.byte_per_s, default=None)
    return [
        str(rank) if status.member == rank else f"{rank} (member {status.member})",
        escape(status.host),
        state(view, rank),
        str(status.steps),
        seconds(status.step_s),
        seconds(view.waits_for_others_s(rank)),
        seconds(None if status.wait_s is None else view.network_s),
        seconds(status.loading_s),
        size(rate_byte_per_s(seen)) if status.sent else NONE,
        NONE if most is None else f"{most.peer}: {size(most.byte_per_s)}",
        str(status.epoch),
        size(status.resident_bytes),
    ]


def _style(view: View, rank: int, selected: int | None) -> str:
    late = view.blame is not None and view.blame.rank == rank
    return " ".join([*(["bold red"] if late else []), *(["reverse"] if rank == selected else [])])


def _facts(view: View) -> str:
    """Return a line about the whole job."""
    first = next(iter(view.ranks.values()), None)
    if first is None:
        return "no rank has reported yet"
    facts = [f"{first.status.world} ranks"]
    if view.gone:
        facts.append(f"{len(view.gone)} gone")
    if first.status.plan:
        facts += [f"plan {escape(first.status.plan)}", f"promise {escape(first.status.promise)}"]
    if view.goodput is not None:
        facts.append(f"goodput {view.goodput:.1%}")
    if view.others:
        facts.append(f"{view.others} ranks report in words of another version of Hocket")
    return " · ".join(facts)


def seconds(value_s: float | None) -> str:
    """Return a time as people read it.

    >>> seconds(0.0123), seconds(2.5), seconds(None)
    ('12.3 ms', '2.50 s', '-')
    """
    if value_s is None:
        return NONE
    return f"{value_s * 1e3:.1f} ms" if value_s < 1 else f"{value_s:.2f} s"


def size(count: float) -> str:
    """Return a number of bytes as people read it.

    >>> size(0), size(1536), size(3e9)
    ('0 B', '1.5 kB', '3.0 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
