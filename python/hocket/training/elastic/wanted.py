"""Parts of the state that a joining rank still wants, and from whom: a machine without I/O.

Each source is asked for some bytes at a time, so faster ones give more. A trained part is right as long as its source sends the
gradients of every step; if the source is lost, another one gives the part anew. A part counts as *proved* when its digest was that
of its source after at least one step: then stepping it here gives what stepping it there does.
"""

from __future__ import annotations

from collections.abc import Sequence

OPEN_BYTES = 64 << 20
"""Bytes asked of one source that have not come yet, at most, but for a larger part alone. The source copies them between two
steps."""


class Wanted:
    """Parts that are here, that are asked for, and that are missing."""

    def __init__(self, sizes: Sequence[int], trained: int) -> None:
        """Begin with nothing. `sizes`: bytes of each part; the first `trained` parts change in steps."""
        self._sizes, self._trained = tuple(sizes), trained
        self._open: dict[int, list[int]] = {}
        """Parts asked of each source."""
        self._open_bytes: dict[int, int] = {}
        self.source_of: dict[int, int] = {}
        """Source of each part that is here."""
        self._stepped: set[int] = set()
        self._proved: set[int] = set()

    @property
    def followed(self) -> set[int]:
        """Sources whose gradients step what is here."""
        return {source for part, source in self.source_of.items() if part < self._trained}

    @property
    def here_bytes(self) -> int:
        """Bytes of the parts that are here."""
        return sum(self._sizes[part] for part in self.source_of)

    @property
    def all_bytes(self) -> int:
        return sum(self._sizes)

    @property
    def complete(self) -> bool:
        """True if all parts are here."""
        return len(self.source_of) == len(self._sizes)

    @property
    def proved(self) -> bool:
        """True if all parts are here and proved, as far as steps change them."""
        return self.complete and len(self._proved) == self._trained

    def come(self, source: int) -> list[tuple[int, list[int]]]:
        """Note a source that has everything; return what to ask of whom."""
        self._open[source], self._open_bytes[source] = [], 0
        return self.asks()

    def given(self, source: int, part: int) -> list[tuple[int, list[int]]]:
        """Note that a part has come; return what to ask of whom. One that comes anew, as a script has changed it, stays proved."""
        open_parts = self._open.get(source, [])
        if part in open_parts:
            open_parts.remove(part)
            self._open_bytes[source] -= self._sizes[part]
        self.source_of[part] = source
        return self.asks()

    def stepped(self, source: int) -> None:
        """Note that parts of this source were stepped, if they had gradients."""
        self._stepped.update(part for part, own in self.source_of.items() if own == source)

    def prove(self, part: int) -> None:
        """Note that a part has the digest of its source; it counts once a step was made since the part came."""
        if part in self._stepped:
            self._proved.add(part)

    def lost(self, source: int) -> list[tuple[int, list[int]]]:
        """Forget a source, and the trained parts that it has given; return what to ask of whom."""
        self._open.pop(source, None)
        for part in [part for part, own in self.source_of.items() if own == source and part < self._trained]:
            del self.source_of[part]
            self._stepped.discard(part)
            self._proved.discard(part)
        return self.asks()

    def asks(self) -> list[tuple[int, list[int]]]:
        """Return what to ask of whom, and count it as asked: each missing part of one source."""
        asked = {part for parts in self._open.values() for part in parts}
        missing = [
            part for part in range(len(self._sizes)) if part not in self.source_of and part not in asked
        ]
        asks: dict[int, list[int]] = {}
        for part in missing:
            if not self._open:
                break
            source = min(self._open, key=lambda each: (self._open_bytes[each], each))
            if self._open[source] and self._open_bytes[source] + self._sizes[part] > OPEN_BYTES:
                break
            self._open[source].append(part)
            self._open_bytes[source] += self._sizes[part]
            asks.setdefault(source, []).append(part)
        return list(asks.items())
