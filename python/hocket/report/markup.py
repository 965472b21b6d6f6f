"""HTML from values: every string is escaped unless it is `Html` already, so text from files can never become markup."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

import msgspec

# Texts come from files: a planner's reason is a few sentences; longer ones are cut so that none can fill the page.
TEXT_CHARACTERS_MAX = 1000
VOID = frozenset({"br", "meta", "col"})


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(text: str) -> Html:
    """`text` for use between tags and in quoted attributes; `Html` is passed through."""
    if isinstance(text, Html):
        return text
    return Html(html.escape(clipped(text), quote=True))


def clipped(text: str) -> str:
    """`text`, cut to TEXT_CHARACTERS_MAX with an ellipsis."""
    return text if len(text) <= TEXT_CHARACTERS_MAX else text[: TEXT_CHARACTERS_MAX - 1] + "…"


def tag(name: str, /, *content: str, **attributes: str | int | float | None) -> Html:
    """One element. `class_` is `class`, `_` in other names is `-`; None leaves an attribute out."""
    opened = name
    for key, value in attributes.items():
        if value is not None:
            opened += f' {key.rstrip("_").replace("_", "-")}="{escaped(str(value))}"'
    if name in VOID:
        return Html(f"<{opened}>")
    return Html(f"<{opened}>{joined(content)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """`parts` one after the other, each escaped unless it is `Html`."""
    return Html("".join(escaped(part) for part in parts))


def data(identifier: str, value: Any) -> Html:
    """A JSON island that the page's script reads. `<`, `>` and `&` are escaped, so nothing inside can end the element."""
    text = msgspec.json.encode(value).decode()
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Html(f'<script type="application/json" id="{escaped(identifier)}">{text}</script>')


def table(head: Iterable[str], rows: Iterable[Html], *, caption: str, class_: str = "") -> Html:
    """A table that scrolls sideways within itself when the window is narrow. `rows` are `row(…)`."""
    header = tag("tr", *(tag("th", cell, scope="col") for cell in head))
    body = tag(
        "table", tag("caption", caption), tag("thead", header), tag("tbody", *rows), class_=class_ or None
    )
    return tag("div", body, class_="scroll", tabindex=0, role="region", aria_label=caption)


def row(first: str, *cells: str, class_: str | None = None) -> Html:
    """A table row whose first cell is its heading."""
    return tag("tr", tag("th", first, scope="row"), *(tag("td", cell) for cell in cells), class_=class_)
