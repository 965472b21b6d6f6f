"""Deadline of a user's code that this process must wait for: it is watched, and said to be at work; at the end it is stopped."""

from __future__ import annotations

import ctypes
import logging
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from hocket.planning.asked import Asked
from hocket.stacks import frame_of
from hocket.user_classes import HOCKET, line_of

T = TypeVar("T")

log = logging.getLogger("hocket.builder")

QUIET_S = 3.0
"""Seconds after which, and after as many again, a user is told that a builder is still at work."""


class _StopError(BaseException):
    """Raised in the thread of a builder whose time is over."""


def within(limit_s: float, work: Callable[[], T], asked: Asked) -> T:
    """Return what `work` returns, or raise what it raises. BuilderError, with the line where it is: it takes longer than allowed.

    A thread that waits in native code cannot be stopped; it ends with the process.
    """
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # raised by the caller
            failed.append(error)

    thread = threading.Thread(target=run, name="hocket-builder", daemon=True)
    thread.start()
    begun_s = time.monotonic()
    while thread.is_alive():
        spent_s = time.monotonic() - begun_s
        if spent_s >= limit_s:
            at = _line(thread, asked)
            _stop(thread)
            raise asked.refusal(
                f"it has made no plan in {limit_s:g} s",
                "does it end? HOCKET_BUILDER_TIMEOUT_S gives it more time",
                at,
            )
        thread.join(min(QUIET_S, limit_s - spent_s))
        if thread.is_alive():
            at = _line(thread, asked)
            where = "" if at is None else f", at {at[0]}:{at[1]}"
            log.warning(
                "builder %s has made no plan yet after %.0f s%s",
                asked.title,
                time.monotonic() - begun_s,
                where,
            )
    if failed:
        if isinstance(failed[0], Exception | KeyboardInterrupt):
            raise failed[0]
        at = line_of(failed[0], asked.file or "")
        raise asked.refusal(f"it raised {type(failed[0]).__name__}", "a builder returns", at) from failed[0]
    return found[0]


def _line(thread: threading.Thread, asked: Asked) -> tuple[str, int] | None:
    """Return the user's file and line at which a thread is."""
    frame = frame_of(thread.ident)
    others = None
    while frame is not None:
        file = frame.f_code.co_filename
        if file == asked.file:
            return file, frame.f_lineno
        if others is None and not file.startswith((HOCKET, "<", threading.__file__)):
            others = file, frame.f_lineno
        frame = frame.f_back
    return others


def _stop(thread: threading.Thread) -> None:
    """Raise an exception in a thread, at its next line of Python."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(_StopError)
    )
