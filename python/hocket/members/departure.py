"""Whether this process is to leave its elastic job, or the whole job ends.

A SIGTERM to a rank is a notice: it leaves in order. To the launcher it means that all ranks end, which the launcher passes on as
a SIGTERM to each, too. So the coordinator says which of the two is meant.
"""

from __future__ import annotations

import os
import signal
import threading


class Departure:
    """Asked for in any thread, and in handlers of signals."""

    def __init__(self) -> None:
        """Nobody wants it."""
        self._asked = False
        self._due = threading.Event()
        self._job_ends = False

    def ask(self) -> None:
        """This process is to leave at the end of a step; when the job ends, it ends of SIGTERM, unless the script handles that."""
        self._asked = True
        self._due.set()
        self._end_with_the_job()

    def ask_again(self) -> None:
        """Whom it was asked of has gone; ask the next one, if it has been asked for."""
        if self._asked:
            self._due.set()

    def due(self) -> bool:
        """Whether it is to be asked for now; true once for each time."""
        asked = self._due.is_set()
        self._due.clear()
        return asked

    def job_ends(self) -> None:
        """All processes are to end, says the coordinator."""
        self._job_ends = True
        if self._asked:
            self._end_with_the_job()

    def _end_with_the_job(self) -> None:
        # Once: a script's own handler may ask for the departure.
        ends, self._job_ends = self._job_ends, False
        if ends:
            os.kill(os.getpid(), signal.SIGTERM)
