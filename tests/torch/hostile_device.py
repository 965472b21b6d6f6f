"""A device of PyTorch's whose copies come as late as they may, on tensors of the processor.

Its compute is done at once. A copy is made by the thread of its stream, after a while that is drawn; until then its destination
holds no numbers. What comes down is what was on the device when its memory was last `made`.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from hocket.torch.devices import Accelerator, Streams, Twin

LATE_S = 2e-3
DEVICE = torch.device("cpu")
_numbers = itertools.count()


class Stream:
    """`torch.Stream`; without a thread, that of compute."""

    def __init__(self, *, device: torch.device | None = None) -> None:
        self.stream_id = next(_numbers)
        self._thread = None if device is None else ThreadPoolExecutor(1)

    def run(self, work: Callable[[], Any]) -> None:
        if self._thread is None:
            work()
        else:
            self._thread.submit(work)

    def wait_event(self, event: Event) -> None:
        self.run(event.recorded.wait)


class Event:
    """`torch.Event`."""

    def __init__(self) -> None:
        self.recorded = threading.Event()

    def record(self, stream: Stream) -> None:
        # Who waits already waits for what was recorded before.
        self.recorded = recorded = threading.Event()
        stream.run(recorded.set)

    def synchronize(self) -> None:
        self.recorded.wait()


class Module:
    """`torch.cuda` of this device."""

    Stream, Event = Stream, Event
    compute = Stream()

    def current_stream(self, _device: torch.device) -> Stream:
        return self.compute

    def stream(self, _stream: Stream) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()


class Hostile(Streams):
    """Streams of such a device. `forgets`: an order that is not kept, to see that it is missed."""

    def __init__(self, seed: int, forgets: str = "") -> None:
        super().__init__(Module(), DEVICE)
        self._draw, self._forgets = random.Random(seed), forgets  # noqa: S311
        self._made: dict[int, torch.Tensor] = {}

    def share(self, tensor: torch.Tensor) -> None:
        self._made[tensor.untyped_storage().data_ptr()] = tensor.clone()

    def made(self, twin: Twin) -> None:
        if self._forgets != "made":
            self._made[twin.tensor.data_ptr()].copy_(twin.tensor)
        super().made(twin)

    def received(self, twin: Twin) -> None:
        if self._forgets != "received":
            super().received(twin)

    def down(self, twin: Twin, into: torch.Tensor, source: torch.Tensor) -> Callable[[], None]:
        wait = super().down(twin, into, source)
        return (lambda: None) if self._forgets == "down" else wait

    def _copy(self, stream: Stream, into: torch.Tensor, source: torch.Tensor) -> None:
        storage = source.untyped_storage().data_ptr()
        comes_down = storage in self._made
        device = source if comes_down else into
        made = self._made[device.untyped_storage().data_ptr()]
        made = made[device.storage_offset() : device.storage_offset() + len(device)]
        late_s = self._draw.random() * LATE_S
        into.fill_(255)

        def copy() -> None:
            time.sleep(late_s)
            into.copy_(made if comes_down else source)
            if not comes_down:
                made.copy_(source)

        stream.run(copy)


def hostile(seed: int, forgets: str = "") -> Accelerator:
    """Return such a device."""
    return Accelerator(DEVICE, Hostile(seed, forgets), lambda _address, _size: lambda: None)
