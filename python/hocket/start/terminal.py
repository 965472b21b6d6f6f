"""Where a rank writes: a pipe, or a terminal of its own, so that it draws as it does alone. What it writes stays as it is."""

from __future__ import annotations

import errno
import os
import subprocess
import termios
import tty
from typing import IO

READ_BYTES = 1 << 16


class Terminal:
    """Terminal of `size` (rows, columns), from which the launcher reads what a rank writes."""

    def __init__(self, size: tuple[int, int]) -> None:
        """Open it; the rank gets `end`, and `begun` then closes it here."""
        own, self.end = os.openpty()
        tty.setraw(self.end)
        termios.tcsetwinsize(self.end, size)
        self.reads: IO[bytes] = os.fdopen(own, "rb", buffering=0)

    def begun(self) -> None:
        """Leave the rank alone at its end, so that reading ends with it."""
        os.close(self.end)


def opened(size: tuple[int, int] | None) -> Terminal | None:
    """Return a terminal of that size; None: without one, or on a system that has no more, the rank writes to a pipe."""
    if size is None:
        return None
    try:
        return Terminal(size)
    except OSError:
        return None


def end_of(terminal: Terminal | None) -> int:
    """Return what `subprocess` takes as the rank's output."""
    return subprocess.PIPE if terminal is None else terminal.end


def read(descriptor: int, bytes_max: int = READ_BYTES) -> bytes:
    """Return what has arrived; nothing at the end, also of a terminal that nobody has open any more."""
    try:
        return os.read(descriptor, bytes_max)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""
