"""Writes to a job's trace while it runs: a full disk costs the rest of that file, never the training."""

from __future__ import annotations

import logging
from collections.abc import Callable

from hocket.errors import ArtefactError

log = logging.getLogger("hocket.trace")


class TraceWrites:
    """Writes to one file. The first failure is logged, and nothing more is written to the file.

    >>> writes = TraceWrites("the script's metrics")
    >>> writes(lambda: None); writes.lost
    False
    """

    def __init__(self, what: str) -> None:
        """Start writing. `what`: the file's content, for people."""
        self._what = what
        self.lost = False

    def __call__(self, write: Callable[[], object]) -> None:
        """Call `write`, which may raise ArtefactError or OSError."""
        if self.lost:
            return
        try:
            write()
        except (ArtefactError, OSError) as error:
            self.lost = True
            log.warning("%s: not in the trace any more, and training goes on without: %s", self._what, error)
