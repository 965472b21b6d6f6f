"""Path of the program `hocket-switch`, which carries frames between a testbed's hosts; it is built from `crates/switch`."""

from __future__ import annotations

import os
from pathlib import Path

from hocket.errors import TestbedError

PROGRAM = Path(__file__).with_name("hocket-switch")


def find() -> Path:
    """Return the program's file. TestbedError if this installation has none."""
    if not os.access(PROGRAM, os.X_OK):
        raise TestbedError(
            f"latency, jitter and loss need the program {PROGRAM}, which is not installed\n"
            "hint: in a checkout, `make switch`; else install hocket from a wheel, or from its sources with cargo"
        )
    return PROGRAM
