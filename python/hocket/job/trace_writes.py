"""Writes to a job's trace while it runs: a full disk costs the rest of that file, never the training."""

from __future__ import annotations

import contextlib
import logging
import threading
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


class TraceLog:
    """Looks that a thread of its own takes while a job runs: again and again, and on closing."""

    def __init__(
        self,
        look: Callable[[], None],
        wait_s: Callable[[], float],
        *,
        name: str,
        ends: tuple[type[Exception], ...] = (),
    ) -> None:
        """Start the thread of that name, which looks after each `wait_s()` seconds. `ends`: errors that end the looks."""
        self._look, self._wait_s = look, wait_s
        self._ends = ends
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take the last look; idempotent."""
        if self._over.is_set():
            return
        self._over.set()
        self._thread.join()
        with contextlib.suppress(*self._ends):
            self._look()

    def _run(self) -> None:
        with contextlib.suppress(*self._ends):
            while not self._over.wait(self._wait_s()):
                self._look()
