"""SIGTERM as a preemption notice: cloud providers and batch systems send it some time before they take back a machine."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType


class Notice:
    """Handler by which, until `end`, the first SIGTERM to this process calls `leave` in its main thread, and the second ends it.

    A handler of the script's own stays in force. None is installed for a session made in another thread, where Python allows none.
    """

    def __init__(self, leave: Callable[[], None]) -> None:
        """Install the handler."""
        self._leave = leave
        self.heard = False
        """True if this process has had a SIGTERM."""
        self._process = os.getpid()
        self._heeds = (
            threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        )
        if self._heeds:
            signal.signal(signal.SIGTERM, self._heard)

    def end(self) -> None:
        """Remove the handler, so that SIGTERM ends the process again; idempotent."""
        if self._heeds and threading.current_thread() is threading.main_thread():
            self._heeds = False
            # The script may have set a handler since.
            if signal.getsignal(signal.SIGTERM) == self._heard:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _heard(self, number: int, _frame: FrameType | None) -> None:
        self.end()
        if os.getpid() == self._process:
            self.heard = True
            self._leave()
        else:
            # A fork, such as a data loader's worker: it inherits this handler, and has no part in the job.
            os.kill(os.getpid(), number)
