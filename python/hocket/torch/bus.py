"""The bus of a device, measured: rates of copies as training makes them, and the time of each beside its bytes."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from statistics import median

import torch

from hocket import _native
from hocket.artefacts.profile import Bus
from hocket.torch.devices import Queue, Twin, pinning, queue_of

PIECES, REPEATS = 8, 5
"""Copies that are under way at once, and how often they are."""
SHORT_BYTES = 1 << 12
"""Length of a copy whose bytes hardly count: a page."""


def measured(device: torch.device) -> Bus:
    """Return the device's bus: its copies are between a twin and pinned memory of the host, as those of gradients."""
    size = PIECES * _native.PIECE_BYTES
    host = torch.frombuffer(mmap.mmap(-1, size), dtype=torch.uint8)
    twin = Twin(host.data_ptr(), size, torch.zeros(size, dtype=torch.uint8, device=device))
    queue = queue_of(device)
    queue.share(twin.tensor)
    queue.made(twin)
    unpin = pinning(device)(twin.address, size)
    try:
        down, up = (_rate(way, queue, twin, host) for way in (_down, _up))
    finally:
        unpin()
    return Bus(down_bytes_per_s=down[0], up_bytes_per_s=up[0], copy_s=max(down[1], up[1]))


Way = Callable[[Queue, Twin, torch.Tensor, int], None]


def _rate(way: Way, queue: Queue, twin: Twin, host: torch.Tensor) -> tuple[float, float]:
    """Return bytes per second of one way, and the seconds of a copy of no bytes."""
    way(queue, twin, host, _native.PIECE_BYTES)
    short_s, long_s = (_copies_s(way, queue, twin, host, each) for each in (SHORT_BYTES, _native.PIECE_BYTES))
    s_per_byte = max(long_s - short_s, long_s / 100) / (_native.PIECE_BYTES - SHORT_BYTES)
    return 1 / s_per_byte, max(0.0, short_s - SHORT_BYTES * s_per_byte)


def _copies_s(way: Way, queue: Queue, twin: Twin, host: torch.Tensor, size: int) -> float:
    found = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        way(queue, twin, host, size)
        found.append((time.perf_counter() - began) / PIECES)
    return median(found)


def _pieces(twin: Twin, host: torch.Tensor, size: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    starts = range(0, PIECES * _native.PIECE_BYTES, _native.PIECE_BYTES)
    return [(host[at : at + size], twin.part(twin.address + at, size)) for at in starts]


def _down(queue: Queue, twin: Twin, host: torch.Tensor, size: int) -> None:
    for ended in [queue.down(twin, into, source) for into, source in _pieces(twin, host, size)]:
        ended.synchronize()


def _up(queue: Queue, twin: Twin, host: torch.Tensor, size: int) -> None:
    for source, into in _pieces(twin, host, size):
        queue.up(twin, into, source)
    if twin.brought is not None:
        twin.brought.synchronize()
