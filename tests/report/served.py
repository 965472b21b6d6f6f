"""`hocket report --live` as a process, for tests."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.launch.processes import finish, plain, start

SERVES = "at http://"
DEADLINE_S = 120.0


class Served:
    """`hocket report --live` of a directory, until it ends."""

    def __init__(self, place: Path, directory: Path | None, *words: str, **variables: str) -> None:
        given = [] if directory is None else [str(directory)]
        self.process = start(plain("report", *given, "--live", *words), TMPDIR=str(place), **variables)
        # A job on another machine writes.
        files = [] if directory is None else list(directory.glob("usage-*.jsonl"))
        over = threading.Event()
        writer = threading.Thread(target=_write, args=(files, over))
        writer.start()
        try:
            self.address = self._served()
        finally:
            over.set()
            writer.join()

    def _served(self) -> str:
        said = ""
        for line in self.process.stderr:
            said += line
            if SERVES in line:
                return line[line.index("http://") :].split()[0]
        raise AssertionError(said + str(finish(self.process)))

    def end(self) -> tuple[int, str, str]:
        """Exit code, output and errors after Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        return finish(self.process)


def _write(files: list[Path], over: threading.Event) -> None:
    while not over.wait(0.3):
        for each in files:
            last = each.read_bytes().splitlines(keepends=True)[-1]
            with each.open("ab") as file:
                file.write(last)


def until(wanted: Callable[[], Any], told: Callable[[], Any] = lambda: "") -> Any:
    deadline_s = time.monotonic() + DEADLINE_S
    while not (found := wanted()):
        assert time.monotonic() < deadline_s, told()
        time.sleep(0.1)
    return found
