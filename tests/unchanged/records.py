"""What is recorded of a commit, as one JSON line per item: kind, key, digest and text. Knows nothing of what the texts are of.

Long texts are compressed, since programs are hundreds of kilobytes of much the same.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

PLAIN_MAX = 4096
"""Characters of a text that is legible in the file."""
FAILED = "failed"
"""The kind of items that tell why others could not be recorded: never equal to anything."""

Texts = Iterator[tuple[str, str]]
"""Keys, each once, and texts."""


class Item(NamedTuple):
    kind: str
    key: str
    sha256: str
    packed: str
    plain: bool

    @classmethod
    def of(cls, kind: str, key: str, text: str) -> Item:
        data = text.encode()
        plain = len(text) <= PLAIN_MAX
        packed = text if plain else base64.b64encode(zlib.compress(data)).decode()
        return cls(kind, key, hashlib.sha256(data).hexdigest(), packed, plain)

    @property
    def text(self) -> str:
        return self.packed if self.plain else zlib.decompress(base64.b64decode(self.packed)).decode()

    @property
    def line(self) -> str:
        field = "text" if self.plain else "zlib"
        return json.dumps(
            {"kind": self.kind, "key": self.key, "sha256": self.sha256, field: self.packed},
            ensure_ascii=False,
        )


def collected(kinds: dict[str, Callable[[], Texts]], told: Callable[[str], None]) -> list[Item]:
    """Items of all kinds, sorted. What raises ends its kind, and is an item of its own. `told`: of each kind as it begins."""
    found: list[Item] = []
    for kind, texts in kinds.items():
        told(kind)
        try:
            found += [Item.of(kind, key, text) for key, text in texts()]
        except Exception as error:
            found.append(Item.of(FAILED, kind, f"{type(error).__name__}: {error}"))
    keys = [(each.kind, each.key) for each in found]
    if twice := sorted({key for key in keys if keys.count(key) > 1} if len(set(keys)) < len(keys) else ()):
        raise ValueError(f"recorded twice: {twice[:3]}")
    return sorted(found)


def write(path: Path, items: Iterable[Item]) -> None:
    path.write_text("".join(f"{each.line}\n" for each in items))


def read(path: Path) -> dict[tuple[str, str], Item]:
    found = {}
    with path.open() as lines:
        for line in lines:
            each: dict[str, Any] = json.loads(line)
            plain = "text" in each
            item = Item(
                each["kind"], each["key"], each["sha256"], each["text" if plain else "zlib"], plain=plain
            )
            found[item.kind, item.key] = item
    return found


def as_json(tree: Any) -> str:
    """Sorted, legible, numbers to the last digit."""
    return json.dumps(tree, indent=1, sort_keys=True, ensure_ascii=False)
