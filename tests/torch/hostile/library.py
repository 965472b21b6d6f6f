"""A library of collectives for the tests' device, as NCCL is for CUDA: it works on the device's memory, on streams of its own, in
the order of calls. What it computes passes through Gloo. `Backend.register_backend` makes PyTorch know it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from tests.torch import hostile

NAME = "hostilelib"
ERROR = "the device's library has failed"
calls: list[str] = []
"""Calls of this process so far."""
before_call: Callable[[int], None] | None = None
"""Called with the number of each call, from 1."""


class Work:
    """A collective under way. Its end is on a stream, where nobody has looked yet."""

    def __init__(self, thread: threading.Thread, ended: torch.Event) -> None:
        self.thread, self.ended = thread, ended
        self.error: Exception | None = None

    def wait(self) -> None:
        """Let the current stream wait."""
        self.thread.join()
        if self.error is not None:
            raise RuntimeError(str(self.error))
        torch.accelerator.current_stream().wait_event(self.ended)


class Library:
    """A group of ranks."""

    def __init__(self, store: Any, rank: int, size: int, timeout: Any) -> None:
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
        self._rank, self._size = rank, size
        self._draw = random.Random(rank)  # noqa: S311  # an order to repeat, no secret
        self._last: threading.Thread | None = None
        self._streams: list[torch.Stream] = []
        self.aborted = False

    def allreduce(self, tensors: list[torch.Tensor], options: Any) -> Work:
        def act(host: torch.Tensor) -> torch.Tensor:
            self._gloo.allreduce([host], options).wait()
            return host

        return self._begin(tensors[0], tensors[0], act)

    def _reduce_scatter_base(self, into: torch.Tensor, whole: torch.Tensor, options: Any) -> Work:
        def act(host: torch.Tensor) -> torch.Tensor:
            both = dist.AllreduceOptions()
            both.reduceOp = options.reduceOp
            self._gloo.allreduce([host], both).wait()
            return host.chunk(self._size)[self._rank]

        assert len(whole) == self._size * len(into)
        return self._begin(into, whole, act)

    def _allgather_base(self, whole: torch.Tensor, own: torch.Tensor, _options: Any) -> Work:
        def act(host: torch.Tensor) -> torch.Tensor:
            parts = [torch.empty_like(host) for _ in range(self._size)]
            self._gloo.allgather([parts], [host]).wait()
            return torch.cat(parts)

        assert len(whole) == self._size * len(own)
        return self._begin(whole, own, act)

    def broadcast(self, tensors: list[torch.Tensor], options: Any) -> Work:
        def act(host: torch.Tensor) -> torch.Tensor:
            self._gloo.broadcast([host], options).wait()
            return host

        return self._begin(tensors[0], tensors[0], act)

    def abort(self) -> None:
        """Begin nothing more; threads end what is under way."""
        self.aborted = True

    def _begin(
        self, into: torch.Tensor, read: torch.Tensor, act: Callable[[torch.Tensor], torch.Tensor]
    ) -> Work:
        calls.append(str(read.shape))
        if before_call is not None:
            before_call(len(calls))
        assert not self.aborted
        if not self._streams:
            self._streams = [torch.Stream(device=read.device) for _ in range(3)]
        stream, begun, ended = self._draw.choice(self._streams), torch.Event(), torch.Event()
        begun.record(torch.accelerator.current_stream(read.device))
        stream.wait_event(begun)
        before, work = self._last, Work(threading.current_thread(), ended)

        def run() -> None:
            try:
                if before is not None:
                    before.join()
                host, down = torch.empty(read.shape, dtype=read.dtype), torch.Event()
                with stream:
                    host.copy_(read, non_blocking=True)
                down.record(stream)
                down.synchronize()
                # Kept until the copy up has ended, which may be long after the work is given up.
                self._kept = made = act(host)
                with stream:
                    into.copy_(made, non_blocking=True)
                ended.record(stream)
            except Exception as error:
                work.error = error

        work.thread = self._last = threading.Thread(target=run, daemon=True)
        self._last.start()
        return work


def register() -> None:
    """Let PyTorch know it, once."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, Library, devices=[hostile.NAME])
