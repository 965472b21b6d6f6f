"""Tuning that comes with Hocket, for jobs that have none of their own: a file that `hocket tune` wrote."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hocket.artefacts import files
from hocket.artefacts.tuning import Tuning

FILE = Path(__file__).parent / "tuning.json"


@cache
def tuning() -> Tuning:
    """Return the tuning, which is read once.

    >>> tuning().version
    1
    """
    return files.read(FILE, Tuning)
