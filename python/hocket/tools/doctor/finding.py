"""Answer of the doctor: plain data for the table and for JSON; and limits of the control group, which several answers name."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Literal

from msgspec import Struct

State = Literal["works", "missing", "unsupported", "broken"]
"""State of a finding. `missing`: Hocket runs without it, and `detail` says what does not work; `unsupported`: this version has no
use for it; `broken`: no job can run before it is repaired."""


class Finding(Struct, frozen=True, kw_only=True):
    """Subject of the check, its state here, and the remedy if it does not work."""

    section: str
    name: str
    state: State
    detail: str
    hint: str = ""


GROUP = Path("/sys/fs/cgroup")


def group_limit(*names: str) -> int | None:
    """Return a limit of a container's control group, by its file's names in versions 2 and 1. None: there is none."""
    for name in names:
        with contextlib.suppress(OSError, ValueError):  # "max"
            return int((GROUP / name).read_text())
    return None
