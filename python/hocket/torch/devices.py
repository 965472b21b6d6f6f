"""Twins of registered memory on a device that PyTorch knows, and the order of copies between the two.

With streams and events (CUDA, ROCm, XPU), copies have streams of their own: down waits for the work that made the gradients, later
work waits for what went up, and no thread of the script waits for either. A device without them (one queue) is synchronised around
each copy.
"""

from __future__ import annotations

import bisect
import contextlib
import logging
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch

from hocket import _native
from hocket.errors import UsageError
from hocket.policy.libraries import ON_DEVICE
from hocket.torch.dtypes import TORCH_DTYPES

log = logging.getLogger("hocket.torch")


class Twin:
    """Memory on the device, as bytes. `made`: events after the work that has written or read it, by stream; `brought`: the event
    after the last copy to it."""

    def __init__(self, address: int, size: int, tensor: torch.Tensor) -> None:
        """`address`, `size`: those of the host's memory."""
        self.address, self.size, self.tensor = address, size, tensor
        self.made: dict[Any, Any] = {}
        self.brought: Any = None

    def part(self, address: int, size: int) -> torch.Tensor:
        """Return what the device has of the host's bytes from `address` on."""
        return self.tensor[address - self.address : address - self.address + size]


class Ended(Protocol):
    """Event after a copy."""

    def query(self) -> bool:
        """Return whether the copy has ended."""

    def synchronize(self) -> None:
        """Wait for the end of the copy."""


class Queue(Protocol):
    """Order of copies on one kind of device. `devices`: those whose streams a future of PyTorch's must order."""

    devices: list[torch.device]

    def synchronize(self) -> None:
        """Wait for all work of the device."""

    def share(self, tensor: torch.Tensor) -> None:
        """Keep the tensor's memory, once it is free, from others until copies have ended."""

    def made(self, twin: Twin) -> None:
        """Let copies wait for the calling thread's work until now."""

    def received(self, twin: Twin) -> None:
        """Let the calling thread's work from now on wait for copies to the device."""

    def follow(self, twin: Twin) -> None:
        """Let the calling thread's work from now on wait for what was `made`."""

    def aside(self) -> AbstractContextManager[object]:
        """Let the calling thread's work within follow the copies to the device, and nothing else wait for it."""

    def down(self, twin: Twin, into: torch.Tensor, source: torch.Tensor) -> Ended:
        """Begin to copy part of a twin to the host; return the event after it."""

    def up(self, twin: Twin, into: torch.Tensor, source: torch.Tensor) -> None:
        """Begin to copy to part of a twin."""


class Now:
    """Event after a copy that has ended."""

    def query(self) -> bool:
        """Return True."""
        return True

    def synchronize(self) -> None:
        """Return at once."""


class Synchronous:
    """Copies that end before anything else begins."""

    def __init__(self, synchronize: Callable[[], None]) -> None:
        """`synchronize`: waits for all work of the device."""
        self.synchronize = synchronize
        self.devices: list[torch.device] = []

    def share(self, _tensor: torch.Tensor) -> None:
        """Do nothing."""

    def made(self, _twin: Twin) -> None:
        """Do nothing."""

    def received(self, _twin: Twin) -> None:
        """Do nothing."""

    def follow(self, _twin: Twin) -> None:
        """Do nothing."""

    def aside(self) -> AbstractContextManager[object]:
        """Do nothing."""
        return contextlib.nullcontext()

    def down(self, _twin: Twin, into: torch.Tensor, source: torch.Tensor) -> Ended:
        """Copy when all work is done."""
        self.synchronize()
        into.copy_(source)
        return Now()

    def up(self, _twin: Twin, into: torch.Tensor, source: torch.Tensor) -> None:
        """Copy when all work is done, and before any other is."""
        self.synchronize()
        into.copy_(source)
        self.synchronize()


class Module(Protocol):
    """Part of `torch.cuda`, `torch.xpu` and others like them."""

    Stream: Callable[..., Any]
    Event: Callable[[], Any]

    def current_stream(self, device: torch.device) -> Any:
        """Return the stream to which the calling thread gives work."""

    def stream(self, stream: Any) -> AbstractContextManager[object]:
        """Let the calling thread give work to that stream."""

    def synchronize(self, device: torch.device) -> None:
        """Wait for all work of the device."""


class Streams:
    """Copies on two streams, one each way, ordered by events."""

    def __init__(self, module: Module, device: torch.device) -> None:
        """Make the streams. `module`: the device's own, of PyTorch."""
        self._module, self._device, self.devices = module, device, [device]
        self._down, self._up = module.Stream(device=device), module.Stream(device=device)

    def synchronize(self) -> None:
        """Wait for all work of the device."""
        self._module.synchronize(self._device)

    def share(self, tensor: torch.Tensor) -> None:
        """Keep the tensor's memory, once it is free, from others until copies have ended."""
        for stream in (self._down, self._up):
            tensor.record_stream(stream)

    def made(self, twin: Twin) -> None:
        """Record an event, one for each stream that gives work."""
        stream = self._module.current_stream(self._device)
        event = twin.made.get(stream.stream_id)
        if event is None:
            event = twin.made[stream.stream_id] = self._module.Event()
        event.record(stream)

    def received(self, twin: Twin) -> None:
        """Let the current stream wait for what went up last."""
        if twin.brought is not None:
            self._module.current_stream(self._device).wait_event(twin.brought)

    def follow(self, twin: Twin) -> None:
        """Let the current stream wait for each event of `made`."""
        self._order(twin, self._module.current_stream(self._device))

    def aside(self) -> AbstractContextManager[object]:
        """Make the stream that goes up the current one."""
        return self._module.stream(self._up)

    def down(self, twin: Twin, into: torch.Tensor, source: torch.Tensor) -> Ended:
        """Copy on the stream that goes down."""
        ended = self._module.Event()
        self._order(twin, self._down)
        # What went up last may still be read from the memory that this overwrites.
        if twin.brought is not None:
            self._down.wait_event(twin.brought)
        self._copy(self._down, into, source)
        ended.record(self._down)
        copied: Ended = ended
        return copied

    def up(self, twin: Twin, into: torch.Tensor, source: torch.Tensor) -> None:
        """Copy on the stream that goes up."""
        brought = self._module.Event()
        self._order(twin, self._up)
        self._copy(self._up, into, source)
        brought.record(self._up)
        twin.brought = brought

    def _copy(self, stream: Any, into: torch.Tensor, source: torch.Tensor) -> None:
        with self._module.stream(stream):
            into.copy_(source, non_blocking=True)

    def _order(self, twin: Twin, stream: Any) -> None:
        for event in list(twin.made.values()):
            stream.wait_event(event)


class Landing:
    """Tensors of a device whose copies up may still be under way: what a work of PyTorch's has of them."""

    def __init__(self, queue: Queue, twin: Twin) -> None:
        """`twin.brought` is the event after the last copy, once that has begun."""
        self.queue, self.twin = queue, twin

    def received(self) -> None:
        """Let the calling thread's work wait for what went up."""
        self.queue.received(self.twin)

    @property
    def is_over(self) -> bool:
        """True if what has gone up is there."""
        return self.twin.brought is None or bool(self.twin.brought.query())

    def aside(self) -> AbstractContextManager[object]:
        """Let the calling thread's work within follow what went up."""
        return self.queue.aside()

    def copy(self, into: torch.Tensor, source: torch.Tensor) -> None:
        """Begin to copy within the device, or up to it, after what has gone up before."""
        self.queue.up(self.twin, into, source)


class Lent:
    """Part of a twin, for a library (`hocket.libraries.call.Lent`)."""

    def __init__(self, queue: Queue, twin: Twin, part: torch.Tensor) -> None:
        """`part`: of the twin's memory."""
        self.device, self._queue, self._twin, self._part = part.device, queue, twin, part

    def take(self) -> torch.Tensor:
        """Return it, for work that follows what has written there."""
        self._queue.follow(self._twin)
        self._queue.received(self._twin)
        return self._part


class Accelerator:
    """Device of a model's parameters (`hocket.training.memory.device.Device`)."""

    def __init__(
        self, device: torch.device, queue: Queue, pin: Callable[[int, int], Callable[[], None]]
    ) -> None:
        """`pin`: keeps host memory in place from an address on, so many bytes; returns what ends that."""
        self.device, self._queue, self._pin = device, queue, pin
        self.libraries: tuple[str, ...] = (ON_DEVICE, "nccl") if device.type == "cuda" else (ON_DEVICE,)
        self._twins: dict[int, Twin] = {}
        self._addresses: list[int] = []
        self._lock = threading.Lock()

    def synchronize(self) -> None:
        """Wait for all work of the device."""
        self._queue.synchronize()

    def array(self, memory: _native.Memory, start: int, dtype: str, shape: Sequence[int]) -> torch.Tensor:
        """Return a tensor on the device, over the twin of `memory` from byte `start` on."""
        kind = TORCH_DTYPES[dtype]
        size = torch.Size(shape).numel() * kind.itemsize
        twin = self._twins.get(memory.address) or self._make(memory)
        # `data` has a version of its own: copies into the twin are no changes by the script.
        return twin.tensor[start : start + size].view(kind).view(tuple(shape)).data

    def extent(self, memory: _native.Memory) -> tuple[int, int]:
        """Return the first address of the twin on the device, and its end."""
        tensor = self._twins[memory.address].tensor
        return tensor.data_ptr(), tensor.data_ptr() + tensor.numel()

    def made(self, memory: _native.Memory) -> None:
        """Let copies between the device and this memory wait for the work that the calling thread has given the device."""
        self._queue.made(self._twins[memory.address])

    def received(self, memory: _native.Memory) -> None:
        """Let the calling thread's work from now on wait for copies to the device.

        The calling thread waits for them, too: the next epoch may give the host's memory, from which they read, to others.
        """
        twin = self._twins[memory.address]
        self._queue.received(twin)
        if twin.brought is not None:
            twin.brought.synchronize()

    def follow(self, memory: _native.Memory) -> None:
        """Let the calling thread's work from now on wait for work and copies until now that have this memory's twin."""
        twin = self._twins[memory.address]
        self._queue.follow(twin)
        self._queue.received(twin)

    def landing(self, memory: _native.Memory, tensor: torch.Tensor) -> Landing:
        """Return what a work has of a tensor that is copied out of this memory's twin."""
        self._queue.share(tensor)
        return Landing(self._queue, self._twins[memory.address])

    def read(self, memory: _native.Memory) -> None:
        """Copy all of the device's contents into the memory, now: what was made there, and what has gone up."""
        self.follow(memory)
        torch.frombuffer(memory, dtype=torch.uint8).copy_(self._twins[memory.address].tensor)

    def write(self, memory: _native.Memory) -> None:
        """Copy all of the memory's contents to the device, now, after work and copies that have its twin."""
        self.follow(memory)
        self._twins[memory.address].tensor.copy_(torch.frombuffer(memory, dtype=torch.uint8))

    def holds(self, address: int) -> bool:
        """Return whether there is a twin of the byte at that address."""
        return self._find(address) is not None

    def down(self, host: _native.Window) -> Callable[[], None]:
        """Begin to copy into `host`; return what waits for the end of that."""
        into, twin = self._ends(host)
        return self._queue.down(twin, into, twin.part(host.address, len(into))).synchronize

    def up(self, host: _native.Window) -> None:
        """Begin to copy from `host`, which keeps its contents until the next `down`."""
        source, twin = self._ends(host)
        self._queue.up(twin, twin.part(host.address, len(source)), source)

    def lent(self, host: _native.Window) -> Lent:
        """Return the device's memory whose twin is `host`, for a library."""
        into, twin = self._ends(host)
        return Lent(self._queue, twin, twin.part(host.address, len(into)))

    def _ends(self, host: _native.Window) -> tuple[torch.Tensor, Twin]:
        twin = self._find(host.address)
        assert twin is not None  # noqa: S101  # the caller has asked `holds`
        return torch.frombuffer(host, dtype=torch.uint8), twin

    def _find(self, address: int) -> Twin | None:
        with self._lock:
            at = bisect.bisect_right(self._addresses, address) - 1
            twin = self._twins[self._addresses[at]] if at >= 0 else None
        return twin if twin is not None and address < twin.address + twin.size else None

    def _make(self, memory: _native.Memory) -> Twin:
        address, size = memory.address, len(memory)
        twin = Twin(address, size, torch.zeros(size, dtype=torch.uint8, device=self.device))
        self._queue.share(twin.tensor)
        # What comes up must not be overwritten by these zeros.
        self._queue.made(twin)
        with self._lock:
            self._twins[address] = twin
            bisect.insort(self._addresses, address)
        unpin = self._pin(address, size)
        weakref.finalize(memory, self._forget, address, unpin).atexit = False
        return twin

    def _forget(self, address: int, unpin: Callable[[], None]) -> None:
        with self._lock:
            twin = self._twins.pop(address)
            self._addresses.remove(address)
        try:
            if twin.brought is not None:
                # The copy up may not have begun, and others write to the host's memory as soon as it is given back.
                twin.brought.synchronize()
        except RuntimeError as error:
            # No copy follows on a device that has failed.
            log.warning("%s has failed before the end of its copies: %s", self.device, error)
        finally:
            unpin()


def accelerator(device: torch.device) -> Accelerator | None:
    """Return the device's part in training; None: it is the processor's memory, and needs none. UsageError: PyTorch does not know
    it."""
    if device.type == "cpu":
        return None
    return Accelerator(device, queue_of(device), pinning(device))


def queue_of(device: torch.device) -> Queue:
    """Return the order of copies on a device. UsageError: PyTorch does not know the device, or that has no memory."""
    try:
        module: Any = torch.get_device_module(device)
    except RuntimeError as error:
        raise UsageError(
            f"tensors are on {device}, of which this PyTorch has no module: {error}\n"
            "hint: a device with memory, such as model.to_empty(device=…) gives to one on `meta`"
        ) from None
    if all(hasattr(module, name) for name in ("Stream", "Event", "current_stream", "stream")):
        return Streams(module, device)
    return Synchronous(getattr(module, "synchronize", lambda: None))


def pinning(device: torch.device) -> Callable[[int, int], Callable[[], None]]:
    """Return what registers host memory with the driver, so that copies need no other memory, where PyTorch offers that."""
    if device.type != "cuda":
        return lambda _address, _size: lambda: None
    runtime: Any = torch.cuda.cudart()
    told = False

    def pin(address: int, size: int) -> Callable[[], None]:
        nonlocal told
        with torch.cuda.device(device):
            failed = int(runtime.cudaHostRegister(address, size, 1))
        if not failed:
            return lambda: _unpin(runtime, address)
        if not told:
            told = True
            log.warning(
                "the driver does not pin %d bytes of host memory (error %d): copies from and to %s are slower; said once\n"
                "hint: `ulimit -l` is the limit of memory that a process may pin",
                size,
                failed,
                device,
            )
        return lambda: None

    return pin


def _unpin(runtime: Any, address: int) -> None:
    # The driver may have gone before memory does.
    with contextlib.suppress(RuntimeError):
        runtime.cudaHostUnregister(address)
