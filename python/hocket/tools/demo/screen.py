"""Progress of the demo on the screen: a line for every finished phase, a progress bar for the current one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class Phase:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self.result = ""
        self._progress = progress
        self._task = task

    def advance(self, done: int, what: str, total: int | None = None) -> None:
        """Show that `done` of the phase's steps are done, and `what` follows; `total` when it is known."""
        self._progress.update(self._task, completed=done, total=total, what=what)

    def finish(self, result: str) -> None:
        """Note the phase's result, for its line."""
        self.result = result


class Screen:
    """Screen of the demo; use it as a context. Every phase of the demo is a context of the screen."""

    def __init__(self, console: Console) -> None:
        """Show nothing before `__enter__`."""
        self.console = console
        self._began_s = time.monotonic()
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[what]}"),
        )
        self._progress = Progress(*columns, console=console, transient=True)

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began_s

    def __enter__(self) -> Screen:
        self._progress.start()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Remove the bar; the lines stay."""
        self._progress.stop()

    def say(self, text: str) -> None:
        self.console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def phase(self, title: str, total: int | None = None) -> Iterator[Phase]:
        """Show a phase of `total` steps; its line, with the time since the start, appears when it has succeeded."""
        task = self._progress.add_task(title, total=total, what="starting")
        try:
            phase = Phase(self._progress, task)
            yield phase
        finally:
            self._progress.remove_task(task)
        minutes, seconds = divmod(int(self.elapsed_s), 60)
        self.say(f"{minutes:2d}:{seconds:02d}  {title}" + (f": {phase.result}" if phase.result else ""))
