"""What ranks print, as the launcher shows it: whole lines, each after `[rank]`; the last ones kept for the
final word."""

from __future__ import annotations

from collections import deque
from typing import BinaryIO

LINE_BYTES_MAX = 1 << 16
"""A longer line, such as a progress bar without line ends, is shown in pieces."""
LINES_KEPT = 20
COLOURS = (36, 33, 32, 35, 34, 31)


class Channel:
    """One stream of one rank. `prefix` goes before each line; `target` None: kept but not shown."""

    def __init__(self, target: BinaryIO | None, prefix: bytes) -> None:
        """Nothing held."""
        self.last: deque[bytes] = deque(maxlen=LINES_KEPT)
        self._target = target
        self._prefix = prefix
        self._held = b""

    def feed(self, data: bytes) -> None:
        """Show the lines that `data` completes."""
        *lines, self._held = (self._held + data).split(b"\n")
        if len(self._held) >= LINE_BYTES_MAX:
            lines.append(self._held)
            self._held = b""
        self._show(lines)

    def end(self) -> None:
        """Show what is held, line end or not."""
        if self._held:
            self._show([self._held])
        self._held = b""

    def _show(self, lines: list[bytes]) -> None:
        self.last.extend(line for line in lines if line.strip())
        if lines and self._target is not None:
            self._target.write(b"".join(self._prefix + line + b"\n" for line in lines))
            self._target.flush()


def prefix(rank: int, world: int, *, colour: bool) -> bytes:
    """`[3] `, as wide as the largest rank's.

    >>> prefix(3, 16, colour=False)
    b'[ 3] '
    """
    text = f"[{rank:{len(str(world - 1))}d}]"
    return (f"\033[{COLOURS[rank % len(COLOURS)]}m{text}\033[0m " if colour else f"{text} ").encode()
