"""Extent of a rank's record file: the part of a run that was asked for, and what is missing of that."""

from __future__ import annotations

from dataclasses import dataclass

from hocket import _native

ENDS = tuple(_native.trace_ends())
"""Reasons, by number in the file, for which it ends before its run does; the first: it does not."""

BYTES_MAX = 1 << 32
"""Approximate size of a file whose size was not bounded."""


@dataclass(frozen=True, kw_only=True)
class Extent:
    """Extent of one file."""

    missing: bool = False
    """True if the rank left no file."""
    truncated: bool = False
    """True if the file ends within its header or a record; whole records are there."""
    dropped: int = 0
    """Number of missing records, which came faster than they could be written, or later than the file could take them."""
    steps: tuple[int, int | None] = (0, None)
    """First step that was asked for, and first step after it that was not; None: there is none."""
    bytes_max: int | None = None
    """Limit of the file's bytes; None: not bounded."""
    end: str = "whole"
    """`whole`; `full`: the file has as many bytes as it may; `unwritable`: the disk took no more."""

    @property
    def whole(self) -> bool:
        """True if all is there that was asked for."""
        return not (self.missing or self.truncated or self.dropped)

    @property
    def limits(self) -> list[str]:
        """Phrases, for people, that tell the bounds of the file.

        >>> Extent(steps=(3, 9)).limits, Extent(end="full", bytes_max=300, dropped=7).limits
        (['has steps 3 to 8 alone, as was asked'], ['is full at 300 bytes, and 7 later records are missing'])
        """
        first, stop = self.steps
        found = []
        if stop is not None:
            which = f"steps {first} to {stop - 1}" if stop - first > 1 else f"step {first}"
            found.append(f"has {which} alone, as was asked")
        elif first:
            found.append(f"has steps from {first} on alone, as was asked")
        if self.end == "full":
            bytes_max = self.bytes_max or BYTES_MAX
            found.append(f"is full at {bytes_max:,} bytes, and {self.dropped:,} later records are missing")
        elif self.end != "whole":
            found.append(f"could not be written to its end, and {self.dropped:,} records are missing")
        return found
