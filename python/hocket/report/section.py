"""A section of the page: its question, its HTML, and the same numbers as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hocket.report.markup import Html, tag


@dataclass(frozen=True)
class Section:
    """One question and its answer. `numbers` is its part of `hocket report --json`, if any."""

    name: str
    question: str
    body: Html
    numbers: Any = None

    def html(self) -> Html:
        """The section as an element with the question as its heading."""
        heading = tag("h2", self.question, id=f"{self.name}-heading")
        return tag("section", heading, self.body, id=self.name, aria_labelledby=f"{self.name}-heading")


def absent(name: str, question: str, why: str) -> Section:
    """A section without data: one line says what would provide it, with commands between backticks."""
    parts = (tag("code", part) if index % 2 else part for index, part in enumerate(why.split("`")))
    return Section(name, question, tag("p", *parts, class_="absent"))
