"""Frames of a thread, or of an error, as a dump has them."""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from itertools import islice
from types import FrameType

from hocket.job.dumps.calls import Frame
from hocket.stacks import frame_of

FRAMES_MAX = 64


def of_thread(thread: int | None) -> tuple[Frame, ...]:
    """Return the frames of a thread now, innermost first; none if it has ended."""
    found = frame_of(thread)
    return () if found is None else _frames(traceback.walk_stack(found))


def of_error(error: BaseException) -> tuple[Frame, ...]:
    """Return the frames between whoever has caught an error and whoever raised it, innermost first."""
    return _frames(reversed([*traceback.walk_tb(error.__traceback__)]))


def _frames(found: Iterable[tuple[FrameType, int]]) -> tuple[Frame, ...]:
    return tuple(
        (frame.f_code.co_qualname, frame.f_code.co_filename, line)
        for frame, line in islice(found, FRAMES_MAX)
    )
