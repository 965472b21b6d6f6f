"""Point to point: a send and a receive meet by peer and tag, whichever comes first. Many may be open at once."""

from __future__ import annotations

import threading
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
        self,
        engine: _native.Engine,
        number: int,
        memory: _native.Memory,
        timeout_s: float,
        landing: torch.Tensor | None,
    ) -> None:
        """`memory` has the bytes; `landing` is the tensor of a receive, which gets them when it was waited for."""
        super().__init__()
        self._engine, self._number, self._memory, self._timeout_s = engine, number, memory, timeout_s
        self._landing = landing
        self._complete = False
        self._lock = threading.Lock()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until it is complete; RuntimeError names whom it waits for."""
        limit_s = timeout.total_seconds() if timeout else 0.0
        with self._lock, torch.no_grad():
            if not self._complete:
                try:
                    self._engine.wait_message(self._number, limit_s if limit_s > 0 else self._timeout_s)
                except Error as error:
                    raise RuntimeError(str(error)) from error
                self._complete = True
                if self._landing is not None:
                    tensor = self._landing.detach()
                    tensor.copy_(_view(self._memory, _bytes(tensor)).view(tensor.dtype).view(tensor.shape))
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
    size_bytes = _bytes(tensor)
    memory = engine.allocate(max(size_bytes, 1))
    number = engine.receive(source, tag, memory, size_bytes)
    return Message(engine, number, memory, timeout_s, tensor)


def _bytes(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _view(memory: _native.Memory, size_bytes: int) -> torch.Tensor:
    return torch.from_numpy(np.frombuffer(memoryview(memory), dtype=np.uint8, count=size_bytes))
