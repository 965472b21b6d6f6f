"""Frames of other threads."""

from __future__ import annotations

import gc
import sys
from types import FrameType

COLLECTS = sys.version_info < (3, 12)
"""True if `sys._current_frames` may collect garbage while it holds the lock of all threads: https://github.com/python/cpython/issues/106883.
A finalizer that starts a thread then would wait for that lock for ever, and the process with it."""


def frame_of(thread: int | None) -> FrameType | None:
    """Return the frame in which a thread is now, None if it has ended. `thread`: its `ident`."""
    collects = COLLECTS and gc.isenabled()
    if collects:
        gc.disable()
    try:
        return sys._current_frames().get(thread or 0)
    finally:
        if collects:
            gc.enable()
