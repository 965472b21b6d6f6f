"""Point to point: a send and a receive meet by peer and tag, whichever comes first. Many may be open at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import numpy as np
from torch._C._distributed_c10d import Work

import torch
from hocket import _native
from hocket.errors import Error
from hocket.torch.backend import tensors

TAG_BITS = 32


class Message(Work):
    """One send or receive under way."""

    def __init__(
        self, engine: _native.Engine, number: int, timeout_s: float, landed: Callable[[], None]
    ) -> None:
        """`landed` is called once, when it is complete."""
        super().__init__()
        self._engine, self._number, self._timeout_s, self._landed = engine, number, timeout_s, landed
        self._lock = threading.Lock()
        self._complete = False

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until it is complete; RuntimeError names whom it waits for."""
        limit_s = timeout.total_seconds() if timeout else 0.0
        with self._lock:
            if not self._complete:
                try:
                    self._peer = self._engine.wait_message(
                        self._number, limit_s if limit_s > 0 else self._timeout_s
                    )
                except Error as error:
                    raise RuntimeError(str(error)) from error
                self._complete = True
                if self._landed is not None:
                    self._landed()
                self._memory = self._landed = None
        return True


def send(engine: _native.Engine, to: int, tag: int, tensor: torch.Tensor, timeout_s: float) -> Message:
    """A copy leaves from registered memory, so the tensor may be written at once."""
    with tensors.contiguous([tensor], written=False) as (dense,):
        flat = dense.view(-1).view(torch.uint8) if dense.numel() else torch.empty(0, dtype=torch.uint8)
        memory = engine.allocate(max(flat.numel(), 1))
        _view(memory, flat.numel()).copy_(flat)
    number = engine.send(to, tag, memory, flat.numel())
    return Message(engine, number, memory, timeout_s, None)


def receive(
    engine: _native.Engine, source: int | None, tag: int, tensor: torch.Tensor, timeout_s: float
) -> Message:
    """Into the tensor when it was waited for."""
    size_bytes = tensor.numel() * tensor.element_size()
    memory = engine.allocate(max(size_bytes, 1))

    def land() -> None:
        with torch.no_grad():
            tensor.detach().copy_(_view(memory, size_bytes).view(tensor.dtype).view(tensor.shape))

    number = engine.receive(source, tag, memory, size_bytes)
    return Message(engine, number, memory, timeout_s, land)


def _view(memory: _native.Memory, size_bytes: int) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(memoryview(memory), dtype=np.uint8, count=size_bytes))
