"""Answer of the doctor: plain data for the table and for JSON."""

from __future__ import annotations

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
