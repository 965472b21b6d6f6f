"""HTML from values: every string that is not `Html` is escaped, so text from files cannot act."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

# Texts come from files: a planner's reason is a few sentences; longer texts are cut so that none can fill the page.
TEXT_CHARACTERS_MAX = 2000
# Names stand in columns and headings; 40 characters fit a fully qualified host name.
NAME_CHARACTERS_MAX = 40
VOID = frozenset({"br", "meta", "col"})


class Html(str):
    __slots__ = ()


def escaped(text: str) -> Html:
    """Return `text` for use between tags and in quoted attributes; `Html` is passed through."""
    if isinstance(text, Html):
        return text
    return Html(html.escape(clipped(text), quote=True))


def clipped(text: str, most: int = TEXT_CHARACTERS_MAX) -> str:
    """Return `text`, cut to `most` characters with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "…"


def tag(name: str, /, *content: str, **attributes: str | int | float | None) -> Html:
    """Return one element. `class_` is `class`, `_` in other names is `-`; None leaves an attribute out."""
    opened = name
    for key, value in attributes.items():
        if value is not None:
            opened += f' {key.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
    if name in VOID:
        return Html(f"<{opened}>")
    return Html(f"<{opened}>{joined(content)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """Return the concatenation of `parts`, each escaped unless it is `Html`."""
    return Html("".join(escaped(part) for part in parts))


def data(identifier: str, value: Any) -> Html:
    """Return a JSON island for the script. `<`, `>` and `&` are escaped, so nothing inside can end the element."""
    text = msgspec.json.encode(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{escaped(identifier)}">{text}</script>')


class Row(NamedTuple):
    """Cells of a table's row; the first is its heading."""

    cells: tuple[str, ...]
    class_: str | None = None


def table(head: Sequence[str], rows: Iterable[Row], *, caption: str, class_: str = "") -> Html:
    """Return a table with row headings. In a narrow window each row becomes a card, whose cells are labelled by `head`.

    The roles are explicit because a table with another CSS layout loses its implicit ones.
    """
    body = []
    for cells, row_class in rows:
        first = tag("th", cells[0], scope="row", role="rowheader")
        rest = (
            tag("td", cell, role="cell", data_label=name)
            for name, cell in zip(head[1:], cells[1:], strict=True)
        )
        body.append(tag("tr", first, *rest, role="row", class_=row_class))
    header = tag("tr", *(tag("th", name, scope="col", role="columnheader") for name in head), role="row")
    return captioned(header, body, caption=caption, class_=f"cards {class_}".strip())


def captioned(header: Html, rows: Iterable[Html], *, caption: str, class_: str) -> Html:
    """Return a table under its caption; if it is too wide, it scrolls within itself, and the page does not."""
    content = (tag("thead", header, role="rowgroup"), tag("tbody", *rows, role="rowgroup"))
    shown = tag("table", *content, class_=class_, role="table", aria_label=caption)
    scrolled = tag("div", shown, class_="scroll", tabindex=0, role="region", aria_label=caption)
    return tag("figure", tag("figcaption", caption), scrolled, class_="table")
