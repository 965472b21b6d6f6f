"""Standard output as verbs write it: its failures are told apart from those of other files, and a closed stream takes nothing."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import Any


class OutputLostError(OSError):
    """Error: output could not be written, for example because the disk under it is full."""


class _Output(io.FileIO):
    def write(self, data: Any, /) -> int:
        """Write like FileIO. OutputLostError: it failed; BrokenPipeError: the reader has read enough."""
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputLostError(error.errno, error.strerror) from None


def prepare() -> None:
    """Prepare streams before a verb runs. A stream that was closed from the start has no object in Python."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115  # until the process ends
    out = sys.stdout
    if out is sys.__stdout__ and isinstance(out, io.TextIOWrapper):
        out.flush()
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Output(out.fileno(), "w", closefd=False)),
            encoding=out.encoding,
            errors=out.errors,
            line_buffering=out.line_buffering,
        )


def drop() -> None:
    """Drop output that could not be written: Python would try again at its end, and report an error of its own."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
