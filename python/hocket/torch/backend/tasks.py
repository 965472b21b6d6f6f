"""Works: PyTorch's handles of collectives and messages, used from Python and from C++, which reads their futures.

A future that fails must fail in C++: DDP's reducer takes tensors out of whatever a future holds. From Python, that is
possible only with a callback that raises. PyTorch turns its error into a RuntimeError with the text alone. A backward that
takes a future therefore waits for the work itself, and raises the original error.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import Work
from torch.autograd import graph
from torch.futures import Future

from hocket.errors import UsageError
from hocket.torch.backend.errors import as_torch
from hocket.torch.backward import when_it_ends
from hocket.torch.devices import Landing
from hocket.torch.uncompiled import uncompiled_methods

_futures = threading.Lock()
"""Held briefly while a work's future is made, and while a work is completed."""

_BACKWARD = graph._engine_run_backward.__code__
"""Code object of the function in which autograd runs."""


class _Here(threading.local):
    callbacks_of: Any = None
    """Group whose thread this is, while the thread runs callbacks of a call's future."""


here = _Here()


@uncompiled_methods
class Task(Work):
    """One collective, send or receive, with PyTorch's interface of a work.

    Errors are RuntimeErrors (`errors.py`), as in torch.
    """

    def __init__(
        self, result: Sequence[torch.Tensor], group: object = None, landing: Landing | None = None
    ) -> None:
        """Start incomplete. `result`: output tensors, valid on completion. `group`: group on whose thread the work runs, if any.
        `landing`: those of a device, which are valid for work that follows `wait`."""
        super().__init__()
        self._result, self._group, self._landing = list(result), group, landing
        self._complete = threading.Event()
        self._over = False
        self._failure: BaseException | None = None
        self._source: int | None = None
        self._told: Future[list[torch.Tensor]] | None = None
        self._future: Future[list[torch.Tensor]] | None = None

    def finish(self, *, failure: BaseException | None = None, source: int | None = None) -> None:
        """Mark the work complete or failed, and run callbacks of its future. `source`: sender of a receive, in its group."""
        self._failure, self._source = failure, source
        with _futures:
            told = self._told
            self._over = told is None
            self._complete.set()
        if told is not None:
            self._tell(told)
            self._over = True

    @property
    def is_over(self) -> bool:
        """True if the work is complete, and callbacks registered by then have ended."""
        return self._over

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for completion; RuntimeError with the reason of a failure. The current stream of a device then waits for what goes
        up to its tensors."""
        limit_s = None if timeout is None or timeout <= timedelta(0) else timeout.total_seconds()
        if self._group is not None and here.callbacks_of is self._group and not self._complete.is_set():
            raise as_torch(
                UsageError(
                    "a callback of a collective waits for one that was called later, and runs before it"
                )
            )
        if not self._complete.wait(limit_s):
            raise RuntimeError(f"timed out: not complete after {limit_s:g} s, the limit of this wait")
        if self._failure is not None:
            raise as_torch(self._failure)
        if self._landing is not None:
            self._landing.received()
        return True

    def is_completed(self) -> bool:
        """Return whether the work is complete or failed, also on the device."""
        return self._complete.is_set() and (self._landing is None or self._landing.is_over)

    def is_success(self) -> bool:
        """Return whether the work is complete without failure."""
        return self.is_completed() and self._failure is None

    def exception(self) -> RuntimeError | None:
        """Return the error that `wait` would raise."""
        return None if self._failure is None else as_torch(self._failure)

    def result(self) -> list[torch.Tensor]:
        """Return the output tensors."""
        return self._result

    def synchronize(self) -> None:
        """Wait as `wait` does."""
        self.wait()

    block_current_stream = synchronize

    def source_rank(self) -> int:
        """Return the sender, in its group, of a receive that is complete."""
        if self._source is None:
            raise RuntimeError("who sent is known of a receive that is complete")
        return self._source

    _source_rank = source_rank

    def get_future(self) -> Future[list[torch.Tensor]]:
        """Return a future of the output tensors. A backward that takes it ends after this work, and raises its error."""
        if _outermost_backward():
            when_it_ends(self._raise)
        with _futures:
            if self._future is not None:
                return self._future
            self._told = Future() if self._landing is None else Future(devices=[*self._landing.queue.devices])
            self._future = future = self._told.then(self._outcome)
            told = self._told if self._complete.is_set() else None
        if told is not None:
            self._tell(told)
        return future

    def _tell(self, told: Future[list[torch.Tensor]]) -> None:
        # A future of a device orders streams after the one that is current where it gets its value.
        with contextlib.nullcontext() if self._landing is None else self._landing.aside():
            told.set_result([] if self._failure is not None else self._result)

    def _raise(self) -> None:
        self.wait()

    def _outcome(self, _told: Future[list[torch.Tensor]]) -> list[torch.Tensor]:
        if self._failure is not None:
            raise as_torch(self._failure)
        return self._result


@uncompiled_methods
class Tasks(Work):
    """Several works as one."""

    def __init__(self, works: Sequence[Task]) -> None:
        """Combine `works`, in any order."""
        super().__init__()
        self._works = list(works)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait for all works."""
        return all(work.wait(timeout) for work in self._works)

    def is_completed(self) -> bool:
        """Return whether all works are complete or failed."""
        return all(work.is_completed() for work in self._works)

    def is_success(self) -> bool:
        """Return whether all works are complete without failure."""
        return all(work.is_success() for work in self._works)

    def exception(self) -> RuntimeError | None:
        """Return the error that `wait` would raise."""
        return next((error for work in self._works if (error := work.exception()) is not None), None)

    def result(self) -> list[torch.Tensor]:
        """Return the output tensors of all works."""
        return [tensor for work in self._works for tensor in work.result()]

    def synchronize(self) -> None:
        """Wait for all works."""
        self.wait()

    def get_future(self) -> Future[list[Future[list[torch.Tensor]]]]:
        """Return a future of all works' futures."""
        return torch.futures.collect_all([work.get_future() for work in self._works])


class Done(Task):
    """Work of every collective that ran in the calling thread, for a caller that waits at once and needs no result."""

    def __init__(self) -> None:
        """Start complete."""
        super().__init__([])
        self._complete.set()

    def wait(self, timeout: timedelta | None = None) -> bool:  # noqa: ARG002  # as torch calls it
        """Return at once."""
        return True


DONE = Done()


def _outermost_backward() -> bool:
    """Return whether an outermost backward runs in this thread; a nested one must not wait for communication."""
    if torch._C._current_graph_task_id() == -1:
        return False
    frame, found = sys._getframe(1), 0
    while frame is not None:
        found += frame.f_code is _BACKWARD
        frame = frame.f_back  # type: ignore[assignment]
    return found == 1
