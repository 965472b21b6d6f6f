"""A run that is looked at while it runs: its trace directory as it grows, and what its ranks report.

Whether the job runs is known where its launcher or a rank is on this machine. Of a job on other machines, whose directory is shared
with this one, it shows by the files: they grow until it ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from hocket.artefacts.trace import RUN_FILE
from hocket.errors import ArtefactError, RendezvousError, StoreGoneError, UsageError
from hocket.job.live.files import LiveJob, live_jobs, newest, traced
from hocket.job.live.observer import Observer, View
from hocket.job.usage import interval_s
from hocket.tools.report import now, page
from hocket.tools.report.material import load

QUIET_S, QUIET_LOOKS = 5.0, 3
"""A job on other machines is quiet when nothing was written for so long, and for so many of its looks at memory."""
POLL_S = 0.2
PAGE_SHARE = 0.1
"""Part of a processor that pages of a large trace may take: the next is made after so much longer than the last took."""
REFRESH_S = 1.0


@dataclass(frozen=True)
class Look:
    """One state of the page. `mark`: tells it from others. `runs`: False when the page is final. `wait_s`: until the next one."""

    page: str
    mark: str
    runs: bool
    wait_s: float


class Watched:
    """Run in a directory, until `close`; for any thread.

    Raises:
        UsageError: no directory was given, and there is not one job here that writes a trace.
        ArtefactError: nobody writes to the directory: it is none, or its run has ended.
    """

    def __init__(self, directory: Path | None) -> None:
        self.directory, job = _chosen(directory)
        self._secret = None if job is None else job.secret
        self._observer = None if job is None else Observer(lambda: newest(job))
        self._lock = threading.Lock()
        self._last: Look | None = None
        self._next_s = 0.0
        self._growth = _Growth(self.directory)
        if job is None:
            most_s = max((looks[-1].at_s for looks in load(self.directory).usage if looks), default=0.0)
            self._patience_s = max(QUIET_S, QUIET_LOOKS * interval_s(most_s))
            if not self._growth.within(self._patience_s):
                raise ArtefactError(
                    f"no job writes to {self.directory}: nothing came in {self._patience_s:.0f} s\n"
                    f"hint: `hocket report {self.directory}` shows what is there; --live is for a job that runs"
                )

    def close(self) -> None:
        """Disconnect; idempotent."""
        if self._observer is not None:
            self._observer.close()

    def runs(self) -> bool:
        """Return whether the job runs, without making a page."""
        with self._lock:
            return self._state()[2]

    @property
    def is_final(self) -> bool:
        """Return whether the last page made is the last one of all."""
        return self._last is not None and not self._last.runs

    def look(self) -> Look:
        """Return the page as it is now; one that is final, or that was made just now, stays."""
        with self._lock:
            began_s = time.monotonic()
            if self._last is None or (self._last.runs and began_s >= self._next_s):
                text, runs = self._made()
                mark = hashlib.sha256(text.encode()).hexdigest()[:32]
                wait_s = max(REFRESH_S, (time.monotonic() - began_s) / PAGE_SHARE)
                self._last, self._next_s = Look(text, mark, runs, wait_s), began_s + wait_s
            return self._last

    def _made(self) -> tuple[str, bool]:
        view, words, runs = self._state()
        ranks = None if view is None else now.section(view)
        try:
            material = load(self.directory, runs=runs)
        except ArtefactError as error:
            if runs and not (self.directory / RUN_FILE).exists():
                why = "It has not begun to train yet."
            else:
                why = f"Its trace cannot be read: {error.summary}."
            return page.without_trace(page.Live(f"{words} {why}", runs, ranks)), runs
        return page.render(material, page.Live(words, runs, ranks)), runs

    def _state(self) -> tuple[View | None, str, bool]:
        """Return what the ranks report, a sentence on the job, and whether it runs."""
        if self._observer is None:
            quiet_s = self._growth.quiet_s()
            if quiet_s <= self._patience_s:
                return None, "The job runs on other machines.", True
            words = f"Nothing has been written for {_ago(quiet_s)}: the job has ended, or stands still."
            return None, words, True
        try:
            return self._observer.look(), "The job runs.", True
        except RendezvousError as error:
            if not any(each.secret == self._secret for each in live_jobs()):
                return None, "The job has ended: this is its report.", False
            if isinstance(error, StoreGoneError):
                return None, "The job runs; its ranks meet anew, or end.", True
            return None, f"The job runs, but its ranks' reports cannot be had: {error.summary}.", True


def _chosen(directory: Path | None) -> tuple[Path, LiveJob | None]:
    jobs = live_jobs()
    if directory is not None:
        wanted = traced(directory)
        return directory, next((each for each in jobs if each.trace == wanted), None)
    tracing = [each for each in jobs if each.trace]
    if len(tracing) == 1:
        return Path(tracing[0].trace), tracing[0]
    if tracing:
        listed = "".join(f"\n  {each.trace} of {each}" for each in tracing)
        raise UsageError(
            f"{len(tracing)} jobs on this machine write traces\nhint: give the directory of one:{listed}"
        )
    if jobs:
        listed = "".join(f"\n  {each}" for each in jobs)
        raise UsageError(
            f"no job of yours on this machine writes a trace, which the report is made of:{listed}\n"
            "hint: start it by `hocket run --trace DIR`; `hocket top` shows a job without one"
        )
    raise UsageError(
        "no job of yours runs on this machine\nhint: give the directory of a job's trace, if it is shared with another machine"
    )


class _Growth:
    """Files of a directory, by this process's own clock: those of the machines that write to it may differ."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._sizes, self._changed_s = self._look(), time.monotonic()

    def quiet_s(self) -> float:
        """Return for how long no file has changed, as far as this was asked."""
        sizes = self._look()
        if sizes != self._sizes:
            self._sizes, self._changed_s = sizes, time.monotonic()
        return time.monotonic() - self._changed_s

    def within(self, patience_s: float) -> bool:
        """Return whether a file changes in that time."""
        before_s = self._changed_s
        while self.quiet_s() < patience_s:
            if self._changed_s != before_s:
                return True
            time.sleep(POLL_S)
        return False

    def _look(self) -> dict[str, int]:
        sizes = {}
        with contextlib.suppress(FileNotFoundError):
            for path in self._directory.iterdir():
                if path.name != "report.html":
                    with contextlib.suppress(FileNotFoundError):
                        sizes[path.name] = path.stat().st_size
        return sizes


def _ago(seconds: float) -> str:
    for name, length_s in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if seconds >= 2 * length_s:
            return f"{seconds / length_s:.0f} {name}"
    return f"{seconds:.0f} seconds"
