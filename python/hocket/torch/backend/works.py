"""The order of a group's collectives: that of their calls, in the calling thread where that makes no difference.

A call that is awaited at once runs where it is made; any other (`async_op=True`, DDP's reducer) runs on the group's
thread, and so do all calls that come while that thread has work.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta

from torch._C._distributed_c10d import Work
from torch.futures import Future

import torch
from hocket.errors import Error
from hocket.torch.backend.errors import as_torch

Action = Callable[[], object]

IN_CALLBACK = (
    "a collective is called by a callback of another one's future: its place in the order of calls would differ between ranks\n"
    "hint: call it after wait(); in place of PyTorch's powerSGD_hook there is hocket.torch.ddp_hook(PowerSGD())"
)
"""Callbacks run at unpredictable times, so ranks would call in different orders."""


class _Here(threading.local):
    in_callback = False
    """This thread is running a callback of a future, in the middle of a group's order."""


_here = _Here()
_futures = threading.Lock()
"""Held briefly while a work's future is made, and while a work is completed."""


class Task(Work):
    """One collective, send or receive, with PyTorch's interface of a work.

    Errors are RuntimeErrors (`errors.py`), as in torch.
    """

    def __init__(self, result: Sequence[torch.Tensor]) -> None:
        """`result`: the output tensors; valid on completion."""
        super().__init__()
        self._result = list(result)
        self._complete = threading.Event()
        self._failure: Exception | None = None
        self._source: int | None = None
        self._future: Future[list[torch.Tensor]] | None = None

    def finish(self, *, failure: Exception | None = None, source: int | None = None) -> None:
        """Mark it complete or failed. `source`: of a receive, in its group."""
        self._failure, self._source = failure, source
        with _futures:
            self._complete.set()
            future = self._future
        if future is not None:
            self._tell(future)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for completion; RuntimeError with the reason of a failure."""
        limit_s = None if timeout is None or timeout <= timedelta(0) else timeout.total_seconds()
        if not self._complete.wait(limit_s):
            raise RuntimeError(f"not complete after {limit_s:g} s, the limit of this wait")
        if self._failure is not None:
            raise as_torch(self._failure)
        return True

    def is_completed(self) -> bool:
        """Whether it is complete or failed."""
        return self._complete.is_set()

    def is_success(self) -> bool:
        """Whether it is complete without failure."""
        return self._complete.is_set() and self._failure is None

    def exception(self) -> RuntimeError | None:
        """The error that `wait` would raise."""
        return None if self._failure is None else as_torch(self._failure)

    def result(self) -> list[torch.Tensor]:
        """The output tensors."""
        return self._result

    def synchronize(self) -> None:
        """As `wait`: there is no device to synchronise with."""
        self.wait()

    def source_rank(self) -> int:
        """The sender, in its group; of a receive that was awaited."""
        if self._source is None:
            raise RuntimeError("who sent is known of a receive that is complete")
        return self._source

    _source_rank = source_rank

    def get_future(self) -> Future[list[torch.Tensor]]:
        """A future of the output tensors."""
        with _futures:
            if self._future is None:
                self._future = Future()
                if not self._complete.is_set():
                    return self._future
                future = self._future
            else:
                return self._future
        self._tell(future)
        return future

    def _tell(self, future: Future[list[torch.Tensor]]) -> None:
        if self._failure is None:
            future.set_result(self._result)
        else:
            future.set_exception(as_torch(self._failure))  # type: ignore[arg-type]  # the stub has the result's type


class Tasks(Work):
    """Several as one."""

    def __init__(self, works: Sequence[Task]) -> None:
        """In any order."""
        super().__init__()
        self._works = list(works)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """For all of them."""
        return all(work.wait(timeout) for work in self._works)

    def is_completed(self) -> bool:
        """Whether all of them are."""
        return all(work.is_completed() for work in self._works)

    def get_future(self) -> Future[list[Future[list[torch.Tensor]]]]:
        """Of all of theirs."""
        return torch.futures.collect_all([work.get_future() for work in self._works])


class Done(Task):
    """The work of every collective that ran in the calling thread, for a caller that waits at once and needs no result."""

    def __init__(self) -> None:
        """Complete."""
        super().__init__([])
        self._complete.set()

    def wait(self, timeout: timedelta | None = None) -> bool:  # noqa: ARG002  # as torch calls it
        """It is."""
        return True


DONE = Done()


class Works:
    """The order of one group's collectives."""

    def __init__(self, name: str) -> None:
        """`name`: of the group, for its thread."""
        self._name = name
        self._busy = threading.Lock()
        self._counting = threading.Lock()
        self._tasks: queue.SimpleQueue[tuple[Action, Task] | None] = queue.SimpleQueue()
        self._waiting = 0
        self._thread: threading.Thread | None = None

    def now(self, act: Callable[..., object], *arguments: object) -> bool:
        """Call `act` here, unless another call is queued; returns whether it did.

        Its errors are raised as RuntimeError.
        """
        if _here.in_callback:
            raise RuntimeError(IN_CALLBACK)
        if not self._busy.acquire(False):
            return False
        try:
            if self._waiting:
                return False
            act(*arguments)
        except Error as error:
            raise as_torch(error) from error
        finally:
            self._busy.release()
        return True

    def later(self, act: Action, result: Sequence[torch.Tensor]) -> Task:
        """Call `act` in its turn, on the group's thread; the work gets `result`, or the error of `act`."""
        if _here.in_callback:
            raise RuntimeError(IN_CALLBACK)
        task = Task(result)
        with self._counting:
            self._waiting += 1
            self._tasks.put((act, task))
            if self._thread is None:
                self._thread = threading.Thread(target=self._life, name=f"hocket-{self._name}", daemon=True)
                self._thread.start()
        return task

    def close(self) -> None:
        """End the thread after its queued calls."""
        if self._thread is not None:
            self._tasks.put(None)

    def _life(self) -> None:
        while (due := self._tasks.get()) is not None:
            act, task = due
            failure: Exception | None = None
            with self._busy:
                try:
                    act()
                except Exception as error:  # whatever it is, a waiting caller must get it
                    failure = error
            with self._counting:
                self._waiting -= 1
            _here.in_callback = True
            task.finish(failure=failure)
            _here.in_callback = False
