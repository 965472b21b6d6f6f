"""What runs when: a group's collectives in the order of their calls, in the calling thread where that changes nothing.

A call that is waited for at once runs where it is made; one that is not (`async_op=True`, DDP's reducer) goes to the
group's thread, and so does all that comes while that one has work.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence

from torch._C._distributed_c10d import Work, _create_work_from_future
from torch.futures import Future

import torch
from hocket.errors import Error

Action = Callable[[], object]


def finished(result: Sequence[torch.Tensor]) -> Work:
    """A work that is done."""
    future: Future[list[torch.Tensor]] = Future()
    future.set_result(list(result))
    return _create_work_from_future(future)


class Works:
    """The order of one group's collectives."""

    def __init__(self, name: str) -> None:
        """`name`: of the group, for its thread."""
        self._name = name
        self._busy = threading.Lock()
        self._counting = threading.Lock()
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._waiting = 0
        self._thread: threading.Thread | None = None

    def run(self, act: Action, result: Sequence[torch.Tensor], *, at_once: bool) -> Work:
        """Run `act` now or in turn; the work's result is `result`.

        Errors of `act` are raised here if it runs at once, else by the work's wait; as RuntimeError, as torch has it.
        """
        if at_once and self._busy.acquire(blocking=False):
            try:
                if self._waiting == 0:
                    try:
                        act()
                    except Error as error:
                        raise RuntimeError(str(error)) from error
                    return finished(result)
            finally:
                self._busy.release()
        return self._later(act, result)

    def close(self) -> None:
        """The thread ends after what it has."""
        if self._thread is not None:
            self._tasks.put(None)

    def _later(self, act: Action, result: Sequence[torch.Tensor]) -> Work:
        future: Future[list[torch.Tensor]] = Future()

        def task() -> None:
            failure = None
            try:
                act()
            except Exception as error:  # whatever it is, who waits must get it
                failure = RuntimeError(str(error))
            with self._counting:
                self._waiting -= 1
            if failure is None:
                future.set_result(list(result))
            else:
                future.set_exception(failure)  # type: ignore[arg-type]  # the stub has the result's type

        with self._counting:
            self._waiting += 1
            self._tasks.put(task)
        if self._thread is None:
            self._thread = threading.Thread(target=self._life, name=f"hocket-{self._name}", daemon=True)
            self._thread.start()
        return _create_work_from_future(future)

    def _life(self) -> None:
        while (task := self._tasks.get()) is not None:
            with self._busy:
                task()
