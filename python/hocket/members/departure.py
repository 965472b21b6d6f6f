"""Departure of this process from its elastic job, or the end of the whole job.

A SIGTERM to a rank is a notice: the rank leaves in order. A SIGTERM to the launcher means that all ranks end, and the launcher
passes it on to each rank as a SIGTERM, too. So the coordinator says which of the two is meant.
"""

from __future__ import annotations

import os
import signal
import threading


class Departure:
    """Request to leave, made in any thread or signal handler."""

    def __init__(self) -> None:
        self._asked = False
        self._due = threading.Event()
        self._job_ends = False

    def ask(self) -> None:
        """Ask that this process leave at the end of a step. When the job ends, SIGTERM ends the process, unless the script handles
        that."""
        self._asked = True
        self._due.set()
        self._end_with_the_job()

    def ask_again(self) -> None:
        """Repeat the request, if one was made, to the successor of the coordinator that has gone."""
        if self._asked:
            self._due.set()

    def due(self) -> bool:
        """Return whether the request must be sent now; True once for each request."""
        asked = self._due.is_set()
        self._due.clear()
        return asked

    def job_ends(self) -> None:
        """Note that all processes are to end, according to the coordinator."""
        self._job_ends = True
        if self._asked:
            self._end_with_the_job()

    def _end_with_the_job(self) -> None:
        # Once: a script's own handler may ask for the departure.
        ends, self._job_ends = self._job_ends, False
        if ends:
            os.kill(os.getpid(), signal.SIGTERM)
