"""Dumps of this process: sources of its calls, and the file to which they are written, once when the job fails, or on demand.

A process may be a rank of two jobs, of `hk.distribute` and of the backend of `torch.distributed`: one file has the calls of both.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

from hocket.artefacts import writing
from hocket.errors import Error
from hocket.job.dumps import pytorch
from hocket.job.dumps.calls import Calls
from hocket.job.dumps.frames import of_thread

PREFIX = "rank_"
"""Start of a file's name, before the rank."""

Source = Callable[[], Calls]

log = logging.getLogger("hocket.dumps")


class Dumps:
    """Dumps of this process, in one directory."""

    def __init__(self, directory: str, rank: int, host: str) -> None:
        """Write nothing yet."""
        self._path = Path(directory, f"{PREFIX}{rank}")
        self._rank, self._host = rank, host
        self._lock = threading.Lock()
        self._sources: list[Source] = []
        self._trains = threading.main_thread().ident
        self._failed = False

    def add(self, source: Source) -> None:
        """Have the calls of a source in dumps."""
        self._sources.append(source)

    def remove(self, source: Source) -> None:
        """Forget a source."""
        self._sources.remove(source)

    def write(self, why: str, *, failed: bool) -> None:
        """Write the file. `failed`: the job fails, and what later dumps would show is what came of that: there are none then."""
        with self._lock:
            if self._failed:
                return
            self._failed = failed
            try:
                found = [source() for source in tuple(self._sources)]
                more = {
                    "rank": self._rank,
                    "host": self._host,
                    "process": os.getpid(),
                    "why": why,
                    "stack": [f"{name} at {file}:{line}" for name, file, line in of_thread(self._trains)],
                }
                self._path.parent.mkdir(parents=True, exist_ok=True)
                writing.write(self._path, pytorch.pickled(found, more))
            except (OSError, Error) as error:
                log.warning("rank %d: no dump is written to %s: %s", self._rank, self._path, error)
            else:
                log.info("rank %d has written %s: %s", self._rank, self._path, why)


_of_process: dict[tuple[str, int], Dumps] = {}


def of_process(directory: str, rank: int, host: str) -> Dumps:
    """Return the dumps of this process in a directory as that rank: the same for each of its jobs."""
    return _of_process.setdefault((directory, rank), Dumps(directory, rank, host))
