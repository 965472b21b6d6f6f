"""What earlier jobs found out about hosts and models, and the next job on the same ones starts from."""

from __future__ import annotations

import os
import time
from datetime import timedelta

from msgspec import Struct

from hocket.launch import knowledge
from hocket.launch.cache import Cache
from hocket.settings import Settings


class Known(Struct, frozen=True, kw_only=True):
    """An entry of the cache, for the table and for JSON. `age_s`: since it was kept."""

    kind: str
    about: str
    age_s: float | None
    bytes: int

    @property
    def age(self) -> str:
        """For people."""
        return "" if self.age_s is None else str(timedelta(seconds=int(self.age_s)))


def cache() -> Cache:
    """The user's, whatever is wrong with other settings."""
    return Cache.of(Settings(cache=os.environ.get("HOCKET_CACHE") or None))


def known() -> list[Known]:
    """All entries; those that were used last come first."""
    found = []
    for each in knowledge.kept(cache()):
        entry = each.entry
        if entry is None:
            found.append(Known(kind="damaged", about=each.path.name, age_s=None, bytes=each.bytes))
            continue
        age_s = max(0.0, time.time() - entry.kept_at_s)
        found.append(Known(kind=entry.kind, about=entry.about, age_s=age_s, bytes=each.bytes))
    return found[::-1]


def forget() -> int:
    """Remove all entries; how many there were."""
    return knowledge.forget(cache())
