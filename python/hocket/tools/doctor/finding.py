"""Answer of the doctor: plain data for the table and for JSON; and limits of the control group, which several answers name."""

from __future__ import annotations

from pathlib import Path
from typing import Literal, NamedTuple

from msgspec import Struct

from hocket.start.leash import group_limits

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


class Section(NamedTuple):
    """Findings of one section."""

    name: str

    def __call__(self, name: str, good: bool, detail: str, hint: str = "", bad: State = "missing") -> Finding:
        """Return a finding, with a hint if its subject is not `good`."""
        state: State = "works" if good else bad
        return Finding(section=self.name, name=name, state=state, detail=detail, hint="" if good else hint)


SYSTEM = Path("/")


def group_limit(controller: str, file: str, file_of_1: str) -> int | None:
    """Return the least limit of this process's control groups, by its file's names in versions 2 and 1. None: there is none."""
    return min(
        (each for [each] in group_limits(controller, [file], [file_of_1], system=SYSTEM)), default=None
    )
