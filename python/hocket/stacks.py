"""Frames of other threads."""

from __future__ import annotations

import gc
import sys
import threading
from types import FrameType

COLLECTS = sys.version_info < (3, 12)
"""True if `sys._current_frames` may collect garbage while it holds the lock of all threads (python/cpython, issue 106883). A
finalizer that starts a thread then waits for that lock for ever, and the process with it."""

_looking = threading.RLock()


def frame_of(thread: int | None) -> FrameType | None:
    """Return the frame in which a thread is now, None if it has ended. `thread`: its `ident`."""
    if not COLLECTS:
        return sys._current_frames().get(thread or 0)
    with _looking:
        collects = gc.isenabled()
        gc.disable()
        try:
            return sys._current_frames().get(thread or 0)
        finally:
            if collects:
                gc.enable()
