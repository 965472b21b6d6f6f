"""Output of ranks as the launcher shows it: whole lines after `[rank]`; the last lines are kept for the end.

A progress bar draws its line again and again after a carriage return. On a terminal one rank's bar stays below the lines until it
ends, and other ranks' bars are left out; elsewhere a bar is a line now and then. What a single rank prints is not changed, and on
a terminal it is shown at once.

Where this is shown on a terminal, rank 0 has one, too, since bars such as Rich's are drawn on nothing else. Bars of several lines
go up by as many before they are drawn anew: so far as those lines are still the last ones here, they are taken back.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import BinaryIO

LINE_BYTES_MAX = 1 << 16
"""Limit of a line: longer ones are shown in pieces."""
LINES_KEPT = 20
BAR_EVERY_S = 10.0
"""Time between two lines that show one bar in a file."""
COLOURS = (36, 33, 32, 35, 34, 31)
BAR, CLEAR, UP = b"\r", b"\r\033[K", b"\033[1A"
UNSEEN = re.compile(rb"\033\[(?:2K|\?25[lh])")
"""Erasing of a line, which is drawn anew here anyway, and hiding of the cursor, which would stay hidden with a rank that dies."""


class Screen:
    """Stream or terminal on which several channels show lines and bars."""

    def __init__(self, target: BinaryIO) -> None:
        self.terminal = target.isatty()
        self._target, self._bar = target, b""
        self._draws: object = None
        """Owner of the bar."""
        self._last: object = None
        self._lines = 0
        """Owner of the last lines, and how many of them come after another one's."""

    @property
    def size(self) -> tuple[int, int] | None:
        """Rows and columns of a terminal; None: it is none."""
        if not self.terminal:
            return None
        try:
            columns, rows = os.get_terminal_size(self._target.fileno())
        except OSError:
            return None
        return rows, columns

    def write(self, data: bytes) -> None:
        """Show `data` unchanged."""
        self._target.write(data)
        self._target.flush()

    def lines(self, owner: object, lines: Sequence[bytes]) -> None:
        """Show lines, above the bar if there is one."""
        if self._last is not owner:
            self._last, self._lines = owner, 0
        self._lines += len(lines)
        text = b"".join(line + b"\n" for line in lines)
        # The cursor stands at the beginning of the bar's line, so that lines of others, such as the launcher's, replace it.
        self.write(CLEAR + text + self._bar + BAR if self._bar else text)

    def take_back(self, owner: object) -> None:
        """Remove the last line, above the bar, if it is this owner's."""
        if self.terminal and self._last is owner and self._lines:
            self._lines -= 1
            self.write(CLEAR + UP + CLEAR + self._bar + (BAR if self._bar else b""))

    def draw(self, owner: object, bar: bytes) -> None:
        """Draw a bar on a terminal, unless there is another owner's; an empty one removes it."""
        if self._draws not in (None, owner) or (self._draws is None and not bar):
            return
        self._draws, self._bar = owner if bar else None, bar
        self.write(CLEAR + bar + (BAR if bar else b""))


class Channel:
    """Output stream of one rank.

    `prefix` goes before each line; an empty one leaves lines as they are. `screen` None: lines are kept but not shown. `size`: rows
    and columns of the terminal that the rank is to have; None: it writes to a pipe.
    """

    def __init__(self, screen: Screen | None, prefix: bytes, *, size: tuple[int, int] | None = None) -> None:
        self.last: deque[bytes] = deque(maxlen=LINES_KEPT)
        self.size = size
        self._screen, self._prefix = screen, prefix
        self._at_once = screen is not None and screen.terminal and not prefix
        self._held = b""
        self._bar_at_s = time.monotonic()

    def feed(self, data: bytes) -> None:
        """Show `data`: the lines that it completes, and the bar that it draws."""
        if self._at_once and self._screen is not None:
            self._screen.write(data)
        text = self._held + data
        if self._prefix and self.size is not None:
            *over, text = UNSEEN.sub(b"", text).split(UP)
            for each in over:
                self._show(each.split(b"\n")[:-1])
                if self._screen is not None:
                    self._screen.take_back(self)
        *lines, held = text.split(b"\n")
        self._show(lines)
        if self._prefix and BAR in held:
            drawn = _drawn(held)
            held = BAR + drawn
            self._draw(drawn)
        if len(held) >= LINE_BYTES_MAX:
            self._show([held])
            held = b""
        self._held = held

    def end(self) -> None:
        """Show the held rest, with or without a line end."""
        if self._held:
            self._show([self._held])
        self._held = b""

    def _show(self, lines: Sequence[bytes]) -> None:
        drawn = [_drawn(line) for line in lines]
        self.last.extend(line for line in drawn if line.strip())
        if not lines or self._screen is None or self._at_once:
            return
        self._screen.draw(self, b"")
        self._screen.lines(self, [self._prefix + line for line in drawn] if self._prefix else lines)

    def _draw(self, bar: bytes) -> None:
        if self._screen is None or not bar.strip():
            return
        if self._screen.terminal:
            self._screen.draw(self, self._prefix + bar)
        elif time.monotonic() - self._bar_at_s >= BAR_EVERY_S:
            self._bar_at_s = time.monotonic()
            self._screen.lines(self, [self._prefix + bar])


class Output:
    """The launcher's streams, on which ranks' output is shown; None: our own."""

    def __init__(self, out: BinaryIO | None, err: BinaryIO | None, *, quiet_others: bool) -> None:
        """`quiet_others`: only rank 0's output is shown, unchanged."""
        out, err = out or sys.stdout.buffer, err or sys.stderr.buffer
        self._out, self._err, self._quiet_others = Screen(out), Screen(err), quiet_others
        if self._out.terminal and self._err.terminal and _is_one(out, err):
            # A bar, which goes to standard error, makes way for lines of both.
            self._out = self._err

    def channels(self, rank: int, world: int) -> tuple[Channel, Channel]:
        """Return the channels of a rank's output and errors."""
        if self._quiet_others and rank != 0:
            return Channel(None, b""), Channel(None, b"")
        plain = self._quiet_others or world == 1
        before = "" if plain else prefix(rank, world, colour=False)
        out, err = (
            Channel(
                screen,
                b"" if plain else prefix(rank, world, colour=_colour(screen)),
                size=_narrower(screen.size, len(before)) if rank == 0 else None,
            )
            for screen in (self._out, self._err)
        )
        return out, err


def _is_one(out: BinaryIO, err: BinaryIO) -> bool:
    return out is err or os.fstat(out.fileno()).st_rdev == os.fstat(err.fileno()).st_rdev


def _narrower(size: tuple[int, int] | None, columns: int) -> tuple[int, int] | None:
    return None if size is None else (size[0], max(1, size[1] - columns))


def _colour(screen: Screen) -> bool:
    return screen.terminal and "NO_COLOR" not in os.environ


def _drawn(line: bytes) -> bytes:
    """Return what is to be seen of a line: what follows its last carriage return that something follows.

    >>> _drawn(b"10 %\\r20 %\\r"), _drawn(b"a line of Windows\\r"), _drawn(b"")
    (b'20 %', b'a line of Windows', b'')
    """
    return next((part for part in reversed(line.split(BAR)) if part), b"")


def prefix(rank: int, world: int, *, colour: bool) -> bytes:
    """Return `[3] `, padded to the width of the largest rank.

    >>> prefix(3, 16, colour=False)
    b'[ 3] '
    """
    text = f"[{rank:{len(str(world - 1))}d}]"
    return (f"\033[{COLOURS[rank % len(COLOURS)]}m{text}\033[0m " if colour else f"{text} ").encode()
