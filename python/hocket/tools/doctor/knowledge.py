"""Knowledge of earlier jobs about hosts and models, from which the next job on the same ones starts."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta

from msgspec import Struct

from hocket.job.known import knowledge
from hocket.job.known.cache import Cache
from hocket.settings import Settings


class Known(Struct, frozen=True, kw_only=True):
    """Entry of the cache, for the table and for JSON."""

    kind: str
    about: str
    kept_at: datetime | None
    bytes: int

    @property
    def age(self) -> str:
        if self.kept_at is None:
            return ""
        return str(timedelta(seconds=int((datetime.now(UTC) - self.kept_at).total_seconds())))


def cache() -> Cache:
    """Return the user's cache, whatever is wrong with other settings."""
    return Cache.of(Settings(cache=os.environ.get("HOCKET_CACHE") or None))


def known() -> list[Known]:
    """Return all entries; those that were used last come first."""
    found = []
    for each in knowledge.kept(cache()):
        entry = each.entry
        if entry is None:
            found.append(Known(kind="damaged", about=each.path.name, kept_at=None, bytes=each.bytes))
            continue
        found.append(Known(kind=entry.kind, about=entry.about, kept_at=entry.kept_at, bytes=each.bytes))
    return found[::-1]


def forget() -> int:
    """Remove all entries; return their number."""
    return knowledge.forget(cache())
