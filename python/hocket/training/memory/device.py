"""Memory of gradients on a device, of which registered memory is the host's twin.

A framework whose arrays lie on a device makes them there, one byte for each byte of registered memory. Programs are `staged`: they
copy what they read from the device to the twin, work there, and copy what they have written back, piece by piece. The engine hands
these copies to `Lanes`, which know whose memory it is.
"""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from hocket import _native
from hocket.errors import EpochError, PeerError
from hocket.libraries.call import Lent

LOOK_S = 0.2
"""Longest delay until the end of the job is noticed."""

PIECE_BYTES = _native.PIECE_BYTES

Bound = dict[int, tuple[_native.Memory, int]]
"""Buffers that a program binds: by number, memory and its first byte."""


class Device(Protocol):
    """Device of a framework. `made`, `received`, `read` and `write` are called by the thread whose work they order; the others by
    threads of `Lanes`, and `lent` by whoever runs libraries. `libraries`: names of those whose collectives work on its memory."""

    libraries: tuple[str, ...]

    def made(self, memory: _native.Memory) -> None:
        """Let copies between the device and this memory wait for the work that the calling thread has given the device."""

    def received(self, memory: _native.Memory) -> None:
        """Let work that the calling thread gives the device from now on wait for copies into the device."""

    def read(self, memory: _native.Memory) -> None:
        """Copy all of the device's contents into the memory, now."""

    def write(self, memory: _native.Memory) -> None:
        """Copy all of the memory's contents to the device, now."""

    def holds(self, address: int) -> bool:
        """Return whether the device has a twin of the byte at that address."""

    def down(self, host: _native.Window) -> Callable[[], None]:
        """Begin to copy into `host`; return what waits for the end of that."""

    def up(self, host: _native.Window) -> None:
        """Begin to copy from `host`, which keeps its contents until the next `down`."""

    def lent(self, host: _native.Window) -> Lent:
        """Return the device's memory whose twin is `host`, for a library."""


def made(device: Device | None, memories: Iterable[_native.Memory]) -> None:
    """Let copies of these memories wait for the work that made what they have, if that was a device's."""
    if device is not None:
        for memory in memories:
            device.made(memory)


def received(device: Device | None, memories: Iterable[_native.Memory]) -> None:
    """Let the device's work wait for copies of these memories to it."""
    if device is not None:
        for memory in memories:
            device.received(memory)


def read(device: Device | None, memories: Iterable[_native.Memory]) -> None:
    """Bring the device's contents into these memories."""
    if device is not None:
        for memory in memories:
            device.read(memory)


def write(device: Device | None, memories: Iterable[_native.Memory]) -> None:
    """Bring these memories' contents to the device."""
    if device is not None:
        for memory in memories:
            device.write(memory)


def staged(
    program: _native.Program, bound: Bound, device: Device | None
) -> tuple[_native.Program, Callable[[Bound], Bound]]:
    """Return the program that does the same for memory of the device, and a function that numbers its buffers as `bound` does."""
    if device is None:
        return program, lambda buffers: buffers
    count = len(bound)
    return program.staged(PIECE_BYTES, device.libraries), lambda buffers: {
        count + at: place for at, place in buffers.items()
    }


class Lanes:
    """Two threads of a rank that execute the copies of staged programs, one each way."""

    def __init__(self, engine: _native.Engine, fail: Callable[[str], None]) -> None:
        """Begin without devices. `fail` ends the job."""
        self._engine, self._fail = engine, fail
        self._devices: list[Device] = []
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def serve(self, device: Device | None) -> None:
        """Execute copies of this device's memory, too; None: of none."""
        if device is None or device in self._devices:
            return
        self._devices.append(device)
        if not self._threads:
            runs: Mapping[str, Callable[[], None]] = {"down": self._down, "up": self._up}
            self._threads = [
                threading.Thread(target=self._run, args=(run,), name=f"hocket-{way}", daemon=True)
                for way, run in runs.items()
            ]
            for thread in self._threads:
                thread.start()

    def lent(self, host: _native.Window) -> Lent:
        """Return a device's memory whose twin is `host`."""
        return self._of(host).lent(host)

    def close(self) -> None:
        """End the threads. A copy that never ends is left to them."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(2 * LOOK_S)

    def _run(self, run: Callable[[], None]) -> None:
        try:
            run()
        except Exception as error:
            text = "".join(traceback.format_exception(error))
            self._fail(f"a copy between the host and its device failed: {text}")

    def _down(self) -> None:
        under_way: deque[tuple[int, int, Callable[[], None]]] = deque()
        while under_way or not self._stopped.is_set():
            came = self._engine.next_staged(0.0 if under_way else LOOK_S, up=False)
            if came is not None:
                program, op, host = came
                under_way.append((program, op, self._of(host).down(host)))
            elif under_way:
                program, op, wait = under_way.popleft()
                wait()
                self._complete(program, op)

    def _up(self) -> None:
        while not self._stopped.is_set():
            came = self._engine.next_staged(LOOK_S, up=True)
            if came is not None:
                program, op, host = came
                self._of(host).up(host)
                self._complete(program, op)

    def _complete(self, program: int, op: int) -> None:
        try:
            self._engine.complete_staged(program, op)
        except (EpochError, PeerError):
            # The job has failed, or the epoch of members has ended; whoever waits for the program is told.
            return

    def _of(self, host: _native.Window) -> Device:
        return next(each for each in self._devices if each.holds(host.address))
