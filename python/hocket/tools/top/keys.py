"""Keys of a terminal, one at a time, without Return and without echo."""

from __future__ import annotations

import os
import select
import sys
import termios
import tty
from types import TracebackType

UP, DOWN, ESCAPE = "up", "down", "escape"
SEQUENCES = {b"\x1b[A": UP, b"\x1bOA": UP, b"\x1b[B": DOWN, b"\x1bOB": DOWN, b"\x1b": ESCAPE}
READ_BYTES = 32


class Keys:
    """Keyboard of the terminal at standard input, as a context."""

    def __enter__(self) -> Keys:
        """Take the terminal."""
        self._file = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._file)
        tty.setcbreak(self._file)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Give the terminal back as it was."""
        termios.tcsetattr(self._file, termios.TCSADRAIN, self._before)

    def pressed(self, timeout_s: float) -> str | None:
        """Return the next key, a letter or one of the names above; None: none was pressed in time.

        EOFError: the terminal is gone.
        """
        ready, _, _ = select.select([self._file], [], [], max(0.0, timeout_s))
        if not ready:
            return None
        read = os.read(self._file, READ_BYTES)
        if not read:
            raise EOFError
        return SEQUENCES.get(read) or read[:1].decode(errors="replace")
