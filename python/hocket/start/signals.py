"""Signals to a launcher, which must first end its ranks."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def collected_signals() -> Iterator[list[int]]:
    """Collect Ctrl-C, SIGTERM and SIGHUP instead of dying of them; possible only in the main thread."""
    arrived: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield arrived
        return

    def note(number: int, _frame: FrameType | None) -> None:
        arrived.append(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # ignored on purpose, by nohup or a shell's background job
            signal.signal(number, note)
    try:
        yield arrived
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
