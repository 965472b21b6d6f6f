"""Point-to-point messages: a send and a receive match by peer and tag, whichever comes first. Many may be open at once.

A thread receives the completions, so that a work completes without a waiting caller. Ranks are numbered as in the job.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hocket import _native
from hocket.errors import Error, UsageError
from hocket.torch.backend import tensors
from hocket.torch.backend.staging import Staging, Visit
from hocket.torch.backend.tasks import Task
from hocket.torch.backend.works import Works

TAG_BITS = 32
TAG_MASK = (1 << TAG_BITS) - 1
LOOK_S = 0.05
"""Upper bound on the delay with which a time-out, or the end of the job, is noticed."""


@dataclass(frozen=True)
class _Open:
    """Message in progress; `landing` is the tensor of a receive; `visit`: tensors of a device."""

    task: Task
    memory: _native.Memory
    landing: torch.Tensor | None
    visit: Visit | None
    ranks: Sequence[int]
    timeout_s: float
    since_s: float


@dataclass(frozen=True)
class _Departure:
    """Message that waits for a device, or for such a one before it."""

    to: int
    tag: int
    size_bytes: int
    message: _Open


class Messages:
    """Messages of this process in all groups. Tags are 64 bits."""

    def __init__(self, engine: _native.Engine, works: Sequence[Works], staging: Staging) -> None:
        """Start with no message open. `works`, those of the open groups, note failures before callers learn of them."""
        self._engine, self._works, self._staging = engine, works, staging
        self._lock = threading.Lock()
        self._open: dict[int, _Open] = {}
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._departures: queue.SimpleQueue[_Departure | None] = queue.SimpleQueue()
        self._departing = 0
        """Sends that wait for a device, or for such a send before them."""
        self._sender: threading.Thread | None = None

    def send(self, to: int, tag: int, tensor: torch.Tensor, timeout_s: float) -> Task:
        """Send a copy from registered memory, so the tensor may be overwritten at once."""
        with tensors.contiguous([tensor], written=False) as (dense,):
            size_bytes = _bytes(dense)
            memory = self._engine.allocate(max(size_bytes, 1))
            if size_bytes:
                _view(memory, size_bytes).copy_(dense.view(-1).view(torch.uint8))
        task = Task([])
        message = _Open(task, memory, None, None, (), timeout_s, time.monotonic())
        with self._lock:
            # Messages of one tag leave in the order of their calls.
            if self._departing:
                self._depart(_Departure(to, tag, size_bytes, message))
            else:
                self._begin(self._engine.send(to, tag, memory, size_bytes, notice=True), message)
        return task

    def send_staged(
        self, to: int, tag: int, tensor: torch.Tensor, device: torch.device, timeout_s: float
    ) -> Task:
        """Send a tensor of a device when it has come down."""
        visit = Visit(self._staging.at(device), [tensor], [])
        task = Task([], landing=visit)
        message = _Open(task, visit.memory, None, visit, (), timeout_s, time.monotonic())
        with self._lock:
            self._depart(_Departure(to, tag, _bytes(tensor), message))
        return task

    def receive(
        self,
        source: int | None,
        tag: int,
        tensor: torch.Tensor,
        ranks: Sequence[int],
        timeout_s: float,
        *,
        device: torch.device | None = None,
    ) -> Task:
        """Receive into the tensor, which may be of a device, on completion. `source` None: from any rank.

        `ranks`: ranks of the group, in which the work reports the sender.
        """
        size_bytes = _bytes(tensor)
        visit = None if device is None else Visit(self._staging.at(device), [], [tensor])
        memory = self._engine.allocate(max(size_bytes, 1)) if visit is None else visit.memory
        task = Task([tensor], landing=visit)
        message = _Open(task, memory, tensor, visit, ranks, timeout_s, time.monotonic())
        with self._lock:
            self._begin(self._engine.receive(source, tag, memory, size_bytes, notice=True), message)
        return task

    def close(self) -> None:
        """Fail all messages that are still open."""
        self._closed.set()
        if self._sender is not None:
            self._departures.put(None)
            self._sender.join()
        if self._thread is not None:
            self._thread.join()
        self._fail_all(UsageError("the process group was destroyed"))

    def _begin(self, number: int, message: _Open) -> None:
        self._open[number] = message
        if self._thread is None:
            self._thread = threading.Thread(target=self._life, name="hocket-messages", daemon=True)
            self._thread.start()

    def _depart(self, departure: _Departure) -> None:
        self._departing += 1
        self._departures.put(departure)
        if self._sender is None:
            self._sender = threading.Thread(target=self._send, name="hocket-sends", daemon=True)
            self._sender.start()

    def _send(self) -> None:
        while (due := self._departures.get()) is not None:
            message = due.message
            try:
                if message.visit is not None:
                    message.visit.bring(message.timeout_s)
                with self._lock:
                    number = self._engine.send(due.to, due.tag, message.memory, due.size_bytes, notice=True)
                    self._begin(number, message)
            except Exception as error:
                self._fail(message, error)
            with self._lock:
                self._departing -= 1

    def _life(self) -> None:
        try:
            self._complete()
        except Exception as error:  # after any failure, nothing would complete the other messages
            self._fail_all(
                Error(f"the thread that completes messages failed: {type(error).__name__}: {error}")
            )
            raise

    def _complete(self) -> None:
        while not self._closed.is_set():
            try:
                heard = self._engine.next_message(LOOK_S)
            except Error as error:
                self._fail_all(error)
                # Later senders get the error from the engine.
                self._closed.wait(LOOK_S)
                continue
            if heard is None:
                self._expire()
                continue
            number, source = heard
            with self._lock:
                message = self._open.pop(number)
            try:
                if message.visit is not None:
                    message.visit.land()
                    message.visit.leave()
                elif message.landing is not None:
                    _land(message.landing, message.memory)
            except Exception as error:
                self._fail(message, error)
                continue
            message.task.finish(source=message.ranks.index(source) if message.ranks else None)

    def _expire(self) -> None:
        now_s = time.monotonic()
        with self._lock:
            late = {at: each for at, each in self._open.items() if now_s - each.since_s > each.timeout_s}
            for number in late:
                del self._open[number]
        for number, message in late.items():
            failure = self._engine.give_up_message(number, message.timeout_s)
            self._fail(message, failure)

    def _fail(self, message: _Open, error: Exception) -> None:
        self._note_failure(error)
        if message.visit is not None:
            message.visit.abandon()
        message.task.finish(failure=error)

    def _note_failure(self, error: Exception) -> None:
        for works in self._works:
            works.failed(error)

    def _fail_all(self, why: Error) -> None:
        with self._lock:
            opened, self._open = self._open, {}
        for message in opened.values():
            self._fail(message, why)


def _land(tensor: torch.Tensor, memory: _native.Memory) -> None:
    if size_bytes := _bytes(tensor):
        with torch.no_grad():
            plain = tensor.detach()
            plain.copy_(_view(memory, size_bytes).view(plain.dtype).view(plain.shape))


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _view(memory: _native.Memory, size_bytes: int) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(memoryview(memory), dtype=np.uint8, count=size_bytes))
