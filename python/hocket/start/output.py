"""Output of ranks as the launcher shows it: whole lines after `[rank]`; the last lines are kept for the end."""

from __future__ import annotations

import os
import sys
from collections import deque
from typing import BinaryIO

LINE_BYTES_MAX = 1 << 16
"""Limit of a line: longer ones, such as a progress bar without line ends, are shown in pieces."""
LINES_KEPT = 20
COLOURS = (36, 33, 32, 35, 34, 31)


class Channel:
    """Output stream of one rank. `prefix` goes before each line; `target` None: lines are kept but not shown."""

    def __init__(self, target: BinaryIO | None, prefix: bytes) -> None:
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
        """Show the held rest, with or without a line end."""
        if self._held:
            self._show([self._held])
        self._held = b""

    def _show(self, lines: list[bytes]) -> None:
        self.last.extend(line for line in lines if line.strip())
        if lines and self._target is not None:
            self._target.write(b"".join(self._prefix + line + b"\n" for line in lines))
            self._target.flush()


def channels(
    rank: int, world: int, out: BinaryIO | None, err: BinaryIO | None, *, quiet_others: bool
) -> tuple[Channel, Channel]:
    """Return the channels of a rank's output and errors; None: our own streams. `quiet_others`: only rank 0's, unchanged."""
    if quiet_others and rank != 0:
        return Channel(None, b""), Channel(None, b"")
    plain = quiet_others or world == 1
    out, err = out or sys.stdout.buffer, err or sys.stderr.buffer
    return _channel(out, rank, world, plain), _channel(err, rank, world, plain)


def _channel(target: BinaryIO, rank: int, world: int, plain: bool) -> Channel:
    colour = target.isatty() and "NO_COLOR" not in os.environ
    return Channel(target, b"" if plain else prefix(rank, world, colour=colour))


def prefix(rank: int, world: int, *, colour: bool) -> bytes:
    """Return `[3] `, padded to the width of the largest rank.

    >>> prefix(3, 16, colour=False)
    b'[ 3] '
    """
    text = f"[{rank:{len(str(world - 1))}d}]"
    return (f"\033[{COLOURS[rank % len(COLOURS)]}m{text}\033[0m " if colour else f"{text} ").encode()
