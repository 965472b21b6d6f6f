"""What a job writes to its trace while it runs: a full disk costs the rest of that file, never the training."""

from __future__ import annotations

import logging
from collections.abc import Callable

from hocket.errors import ArtefactError

log = logging.getLogger("hocket.trace")


class TraceWrites:
    """Of one file. Once it cannot be written, that is said, and nothing more is written to it.

    >>> writes = TraceWrites("the script's metrics")
    >>> writes(lambda: None); writes.lost
    False
    """

    def __init__(self, what: str) -> None:
        """`what` is in the file, for people."""
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
