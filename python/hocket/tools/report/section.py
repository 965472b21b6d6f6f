"""Section of the page: its question, its HTML, and the same numbers as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from hocket.tools.report.markup import Html, tag

T = TypeVar("T")


@dataclass(frozen=True)
class Section:
    """Question and its answer. `numbers` is its part of `hocket report --json`, if any."""

    name: str
    question: str
    body: Html
    numbers: Any = None
    is_absent: bool = False
    """True if the trace has nothing to answer it with: `body` says why."""

    def html(self) -> Html:
        """Return the section as an element with the question as its heading."""
        heading = tag("h2", self.question, id=f"{self.name}-heading")
        return tag("section", heading, self.body, id=self.name, aria_labelledby=f"{self.name}-heading")


def absent(name: str, question: str, why: str) -> Section:
    """Return a section without data: one line names a source of the data, with commands between backticks."""
    parts = (tag("code", part) if index % 2 else part for index, part in enumerate(why.split("`")))
    return Section(name, question, tag("span", *parts, class_="absent"), is_absent=True)


def unanswered(sections: Sequence[Section]) -> Section:
    """Return the section that folds questions without an answer into one list."""
    rows = [tag("li", tag("strong", each.question), " ", each.body, id=each.name) for each in sections]
    return Section("unanswered", "What does this trace not tell?", tag("ul", *rows, class_="unanswered"))


def latest(items: Sequence[T], most: int, caption: str) -> tuple[Sequence[T], str]:
    """Return the last `most` items, and the caption of their table, which says so where there are more."""
    shown = items[-most:]
    return shown, caption if len(shown) == len(items) else f"{caption} (the last {most} of {len(items)})"
