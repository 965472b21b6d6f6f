"""Threads that take turns on a clock of their own, which stands still while they compute: a run follows from its seed alone.

Code under test that waits by `threading.Condition`, `time.sleep` and a connection runs as it is: `Clockwork` has stand-ins for the
modules `time` and `threading`.
"""

from __future__ import annotations

import heapq
import random
import threading
import traceback
from collections.abc import Callable
from typing import Any

BEGIN_S = 1000.0


class Killed(BaseException):
    """The process of this thread has ended."""


class Process:
    """Threads that end together.

    Attributes:
        dead: it has ended.
        stopped: none of its threads runs.
    """

    def __init__(self) -> None:
        self.dead = self.stopped = False


class Task:
    """A thread of a process."""

    def __init__(self, work: Clockwork, process: Process, run: Callable[[], object]) -> None:
        self.process = process
        self.baton = threading.Semaphore(0)
        self.wakes_s = work.now_s
        self.notified = self.ended = False
        self._work, self._run = work, run
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()

    def ready(self) -> bool:
        if self.ended or self.process.dead:
            return not self.ended
        return not self.process.stopped and (self.notified or self.wakes_s <= self._work.now_s)

    def _main(self) -> None:
        self.baton.acquire()
        try:
            if not self.process.dead:
                self._run()
        except Killed:
            pass
        except BaseException:  # of whatever kind: the test is to see it
            self._work.surprises.append(traceback.format_exc())
        finally:
            self.ended = True
            self._work.turn.release()


class Clockwork:
    """All threads and everything else that happens in a simulated world.

    Attributes:
        now_s: the time.
        random: decides whatever is open.
        surprises: tracebacks of threads that have ended so.
    """

    def __init__(self, seed: int) -> None:
        """At a time of its own: no clock of a machine reads so."""
        self.now_s = BEGIN_S
        self.random = random.Random(seed)  # noqa: S311  # no secret
        self.surprises: list[str] = []
        self.turn = threading.Semaphore(0)
        self._tasks: list[Task] = []
        self._current: Task | None = None
        self._due: list[tuple[float, float, int, Callable[[], object]]] = []
        self._count = 0

    @property
    def current(self) -> Task:
        assert self._current is not None
        return self._current

    def start(self, process: Process, run: Callable[[], object]) -> Task:
        task = Task(self, process, run)
        self._tasks.append(task)
        return task

    def after(self, time_s: float, do: Callable[[], object]) -> None:
        """Do that then, and not in a thread."""
        self._count += 1
        heapq.heappush(self._due, (self.now_s + time_s, self.random.random(), self._count, do))

    def pause(self, time_s: float) -> bool:
        """The thread that runs waits so long, or until it is notified: whether it was."""
        task = self.current
        task.wakes_s, task.notified = self.now_s + time_s, False
        self.turn.release()
        task.baton.acquire()
        if task.process.dead:
            raise Killed
        return task.notified

    def run(self, until_s: float, over: Callable[[], bool]) -> bool:
        """Until it is `over`; whether it is by that time."""
        while not over():
            ready = [task for task in self._tasks if task.ready()]
            if self._due and self._due[0][0] <= self.now_s:
                heapq.heappop(self._due)[-1]()
            elif ready:
                self._turn_of(self.random.choice(ready))
            else:
                self._tasks = [task for task in self._tasks if not task.ended]
                waiting = [task.wakes_s for task in self._tasks if not task.process.stopped]
                self.now_s = min([*waiting, *(due for due, *_ in self._due[:1])], default=until_s)
                if self.now_s >= until_s:
                    return False
        return True

    def end(self) -> None:
        """All threads, whatever they wait for."""
        for task in self._tasks:
            task.process.dead = True
            while not task.ended:
                self._turn_of(task)

    def _turn_of(self, task: Task) -> None:
        self._current = task
        task.baton.release()
        self.turn.acquire()
        self._current = None


class Condition:
    """As `threading.Condition`. Nobody else runs while its lock is held, so there is none."""

    def __init__(self, work: Clockwork) -> None:
        self._work = work
        self._waiting: list[Task] = []

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        """Nothing is held."""

    def wait(self, timeout: float | None = None) -> bool:
        """Until another thread notifies."""
        self._waiting.append(self._work.current)
        return self._work.pause(3600.0 if timeout is None else timeout)

    def wait_for(self, holds: Callable[[], Any], timeout: float | None = None) -> Any:
        """Until that holds, or the time is up."""
        until_s = self._work.now_s + (3600.0 if timeout is None else timeout)
        while not (found := holds()) and self._work.now_s < until_s:
            self.wait(until_s - self._work.now_s)
        return found

    def notify_all(self) -> None:
        for each in self._waiting:
            each.notified = True
        self._waiting.clear()


class Thread:
    def __init__(self, work: Clockwork, target: Callable[[], object]) -> None:
        self._work, self._target, self._process = work, target, work.current.process
        self.task: Task | None = None

    def start(self) -> None:
        self.task = self._work.start(self._process, self._target)

    def join(self) -> None:
        """Wait for its end."""
        while self.task is not None and not self.task.ended:
            self._work.pause(0.001)


class Threading:
    """In the place of the module `threading`."""

    def __init__(self, work: Clockwork) -> None:
        self._work = work
        self._threads: list[Thread] = []

    def RLock(self) -> None:  # noqa: N802  # the module's name
        """See `Condition`."""

    def Condition(self, lock: object) -> Condition:  # noqa: N802
        """Without the lock."""
        del lock
        return Condition(self._work)

    def Thread(self, *, target: Callable[[], object], name: str, daemon: bool) -> Thread:  # noqa: N802
        del name, daemon
        self._threads.append(Thread(self._work, target))
        return self._threads[-1]

    def current_thread(self) -> Thread | None:
        """That of the task which runs, if this module has made it."""
        return next((each for each in self._threads if each.task is self._work.current), None)


class Time:
    """In the place of the module `time`."""

    def __init__(self, work: Clockwork) -> None:
        self._work = work

    def monotonic(self) -> float:
        return self._work.now_s

    def monotonic_ns(self) -> int:
        return round(self._work.now_s * 1e9)

    def sleep(self, time_s: float) -> None:
        until_s = self._work.now_s + time_s
        while self._work.now_s < until_s:
            self._work.pause(until_s - self._work.now_s)
