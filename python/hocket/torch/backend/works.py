"""Order of a group's collectives: the order of calls, in the calling thread where that makes no difference.

A call that is awaited at once runs where it is made; any other (`async_op=True`, DDP's reducer) runs on the group's
thread, and so do all calls that come while that thread has work. A call from a callback of another call's future runs directly
after that call, before any call made elsewhere: DDP's hooks make such calls, and ranks reach their callbacks at different times.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence

import torch

from hocket.errors import Error, UsageError
from hocket.torch.backend.errors import as_torch
from hocket.torch.backend.tasks import Task, here
from hocket.torch.devices import Landing

Action = Callable[[], object]

END_S = 5.0
"""Seconds for which the end of the process waits for a group's thread: calls notice the end at once, callbacks may not."""


class Works:
    """Order of one group's collectives."""

    def __init__(self, name: str, failing: Callable[[BaseException], None]) -> None:
        """Start with nothing queued. `name`: the group's name, for its thread. `failing` is called with the error of a call."""
        self._name, self._failing = name, failing
        self._busy = threading.Lock()
        self._queueing = threading.Lock()
        self._queue: queue.SimpleQueue[tuple[Action, Task] | None] = queue.SimpleQueue()
        self._last: Task | None = None
        self._thread: threading.Thread | None = None
        self._closed: str | None = None
        """Reason for which further calls are refused."""
        self._ended = self._failed = False
        self._waits_for: set[Works] = set()
        """Works of the groups that callbacks of this group's calls have called."""

    def now(self, act: Callable[..., object], *arguments: object) -> bool:
        """Call `act` here, unless another call is queued; return whether it was called.

        Errors of `act` are raised as RuntimeError.
        """
        inside = self._called_inside()
        if not self._busy.acquire(inside):
            return False
        try:
            self._check_open()
            if not inside and self._last is not None and not self._last.is_over:
                return False
            act(*arguments)
        except Error as error:
            self.failed(error)
            raise as_torch(error) from error
        finally:
            self._busy.release()
        return True

    def later(self, act: Action, result: Sequence[torch.Tensor], landing: Landing | None) -> Task:
        """Call `act` in its turn, on the group's thread; the work gets `result` and `landing`, or the error of `act`."""
        task = Task(result, self, landing)
        if self._called_inside():
            self._run(act, task)
            return task
        with self._queueing:
            self._check_open()
            self._last = task
            self._queue.put((act, task))
            if self._thread is None:
                self._thread = threading.Thread(target=self._life, name=f"hocket-{self._name}", daemon=True)
                self._thread.start()
        return task

    @property
    def is_idle(self) -> bool:
        """True if no call is under way, and none has failed."""
        if not self._busy.acquire(blocking=False):
            return False
        self._busy.release()
        return not self._failed and (self._last is None or self._last.is_over)

    def failed(self, error: BaseException) -> None:
        """Note the failure of a call of the group."""
        # A wrong call is its caller's, and leaves the group as it was.
        if not isinstance(error, UsageError):
            self._failed = True
        self._failing(error)

    def drain(self) -> None:
        """Return when all queued calls have ended, each within its time-out. Later calls are refused."""
        self._close("the process group was destroyed")
        self._join(None)

    def end(self) -> None:
        """Make calls that have not begun fail: the process leaves its job."""
        self._ended = True
        self._close("this process has left its job")

    def join(self) -> None:
        """Wait for the thread, after `end`: the interpreter must not end below its callbacks."""
        self._join(END_S)

    def _close(self, why: str) -> None:
        with self._queueing:
            if self._closed is None:
                self._queue.put(None)
            self._closed = why

    def _join(self, limit_s: float | None) -> None:
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(limit_s)

    def _check_open(self) -> None:
        if self._closed is not None:
            raise as_torch(UsageError(self._closed))

    def _called_inside(self) -> bool:
        """Return whether a callback of one of this group's calls makes the call, which then runs directly after that one."""
        group: Works | None = here.callbacks_of
        if group is None or group is self:
            return group is self
        if self._leads_to(group):
            raise as_torch(
                UsageError(
                    f"a callback of a collective of group {group._name} calls group {self._name}, whose own callbacks call the "
                    "former: each would wait for the other\nhint: call it after wait()"
                )
            )
        group._waits_for.add(self)
        return False

    def _leads_to(self, other: Works) -> bool:
        return any(each is other or each._leads_to(other) for each in self._waits_for)

    def _life(self) -> None:
        while (due := self._queue.get()) is not None:
            self._run(*due)
            # A call refers to its group, which is closed when nothing else does.
            del due

    def _run(self, act: Action, task: Task) -> None:
        failure: BaseException | None = None
        with self._busy:
            try:
                if self._ended:
                    self._check_open()
                act()
            except BaseException as error:  # a waiting caller must get every error
                failure = error
                self.failed(error)
        before, here.callbacks_of = here.callbacks_of, self
        task.finish(failure=failure)
        here.callbacks_of = before
