"""Tensors of a device in a call: they come down to registered memory, stand in there for those of the device, and go up.

The calling thread only marks where its stream is. Copies have streams of their own (`hocket.torch.devices`); the thread that moves
bytes waits for those that come down, and a caller that waits for the work lets its stream wait for those that go up. Host memory is
used again when the copies from it have ended, and stays pinned for as long as the process is in the job.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from hocket import _native
from hocket.errors import Error
from hocket.torch.devices import Ended, Landing, Twin, pinning, queue_of

log = logging.getLogger("hocket.torch")

ALIGN_BYTES = 64
SMALLEST_BYTES = 1 << 12
"""Size of the smallest block; each next kind has twice as much."""
NAP_S = 2e-5
END_S = 5.0
"""Longest wait for copies when the process leaves its job."""
LONGEST_NAP_S = 1e-3
"""Naps between two looks at a copy that has not ended: the first, and the longest."""


class Block:
    """Registered memory for the tensors of one call at a time. `last`: the work of the device that reads or writes it."""

    def __init__(self, memory: _native.Memory) -> None:
        """Begin unused."""
        self.memory = memory
        self.bytes = torch.frombuffer(memory, dtype=torch.uint8)
        self.last: Ended | None = None

    @property
    def is_free(self) -> bool:
        """True if no copy reads or writes it any more."""
        return self.last is None or self.last.query()

    def ends(self, until_s: float) -> bool:
        """Wait until no copy reads or writes it; return whether that was in time."""
        while not self.is_free:
            if time.monotonic() > until_s:
                return False
            time.sleep(NAP_S)
        return True


class Place:
    """One device of this process, and the host memory of its tensors."""

    def __init__(self, device: torch.device, engine: _native.Engine) -> None:
        """Begin without memory. UsageError: PyTorch does not know the device, or that has no memory."""
        self.device, self.queue = device, queue_of(device)
        self.lock = threading.Lock()
        """Held while copies are given to the device."""
        self.writing: list[Visit] = []
        """Calls that have not ended, and write tensors of the device."""
        self.brought: Any = None
        """Event after the last copy up."""
        self._engine, self._pin = engine, pinning(device)
        self._free: dict[int, list[Block]] = {}
        self._blocks: list[Block] = []
        self._unpin: list[Callable[[], None]] = []
        self._memory = threading.Lock()

    def take(self, size_bytes: int) -> Block:
        """Return memory of that size at least."""
        kind = max(SMALLEST_BYTES, 1 << (size_bytes - 1).bit_length()) if size_bytes else SMALLEST_BYTES
        with self._memory:
            free = self._free.setdefault(kind, [])
            # The last one is the likeliest to be in the processor's caches.
            at = next((at for at in reversed(range(len(free))) if free[at].is_free), None)
            if at is not None:
                return free.pop(at)
            block = Block(self._engine.allocate(kind))
            self._unpin.append(self._pin(block.memory.address, kind))
            self._blocks.append(block)
        return block

    def give(self, block: Block) -> None:
        """Take memory back for other calls, which get it when no copy uses it any more."""
        with self._memory:
            self._free[len(block.bytes)].append(block)

    def close(self) -> None:
        """Wait for copies that are under way, and unpin the memory. What a device that hangs may still write stays pinned."""
        until_s = time.monotonic() + END_S
        with self._memory:
            for block in self._blocks:
                try:
                    ended = block.ends(until_s)
                except RuntimeError as error:
                    # No copy follows on a device that has failed.
                    log.warning("%s has failed before the end of its copies: %s", self.device, error)
                    break
                if not ended:
                    log.warning("%s has not ended copies %g s after the last call", self.device, END_S)
                    return
            for unpin in self._unpin:
                unpin()
            self._unpin.clear()


class Staging:
    """Devices of this process whose tensors it has moved in one job."""

    def __init__(self, engine: _native.Engine) -> None:
        """Begin without devices."""
        self._engine = engine
        self._places: dict[torch.device, Place] = {}
        self._lock = threading.Lock()

    def at(self, device: torch.device) -> Place:
        """Return the place of a device. UsageError: PyTorch does not know it."""
        with self._lock:
            if device not in self._places:
                self._places[device] = Place(device, self._engine)
            return self._places[device]

    def close(self) -> None:
        """End the use of host memory by devices."""
        with self._lock:
            for place in self._places.values():
                place.close()


@dataclass(frozen=True)
class _Moved:
    """One tensor of a call: `dense` has its values on the device in one piece, `host` stands in for it."""

    tensor: torch.Tensor
    dense: torch.Tensor
    host: torch.Tensor
    down: bool
    up: bool

    @property
    def is_dense(self) -> bool:
        """True if the tensor's own values lie in one piece."""
        return self.dense.data_ptr() == self.tensor.data_ptr()

    @property
    def span(self) -> tuple[int, int]:
        """First address on the device, and the end."""
        if self.is_dense:
            return self.dense.data_ptr(), self.dense.data_ptr() + self.dense.nbytes
        storage = self.tensor.untyped_storage()
        return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


class Visit(Landing):
    """Tensors of one call on a device, and those on the host that stand in for them: `reads` and `writes`, as in the call."""

    def __init__(self, place: Place, reads: Sequence[torch.Tensor], writes: Sequence[torch.Tensor]) -> None:
        """Mark what the calling thread's work has made by now. A tensor that is read and written is in both."""
        self._place = place
        read, written = ({id(each): each for each in many} for many in (reads, writes))
        dense = {key: _dense(each) for key, each in (read | written).items()}
        ends = [
            0,
            *itertools.accumulate(-(-each.nbytes // ALIGN_BYTES) * ALIGN_BYTES for each in dense.values()),
        ]
        self._block = place.take(ends[-1])
        self._moved = {
            key: _Moved(
                (read | written)[key],
                each,
                _over(self._block, start, each),
                down=key in read,
                up=key in written,
            )
            for (key, each), start in zip(dense.items(), ends, strict=False)
        }
        self.reads = [self._moved[id(each)].host for each in reads]
        self.writes = [self._moved[id(each)].host for each in writes]
        super().__init__(place.queue, Twin(0, 0, self._block.bytes))
        for each in self._moved.values():
            place.queue.share(each.dense)
            place.queue.share(each.tensor)
        place.queue.made(self.twin)
        self._down: list[Ended] | None = None
        with place.lock:
            if not self._awaits_others():
                self._begin()
            if writes:
                place.writing.append(self)

    def bring(self, limit_s: float) -> None:
        """Return when the host has the values. Error: the device has not made them in time."""
        place = self._place
        with place.lock:
            if self._down is None:
                self._begin()
        nap_s, until_s = NAP_S, time.monotonic() + limit_s
        for ended in self._down or ():
            while not ended.query():
                if time.monotonic() > until_s:
                    raise Error(
                        f"tensors of a call have not come down from {place.device} within {limit_s:g} s: the device has not done "
                        "the work that makes them\nhint: look for a kernel that hangs, or raise the time-out of the group"
                    )
                time.sleep(nap_s)
                nap_s = min(2 * nap_s, LONGEST_NAP_S)

    def land(self) -> None:
        """Begin to copy results up."""
        place = self._place
        with place.lock:
            for each in self._moved.values():
                if each.up and each.host.numel():
                    self.queue.up(self.twin, each.dense, each.host)
                    if not each.is_dense:
                        self.queue.up(self.twin, each.tensor.data, each.dense)
            place.brought = self.twin.brought

    @property
    def memory(self) -> _native.Memory:
        """Host's memory, in which the first tensor comes first."""
        return self._block.memory

    def leave(self) -> None:
        """Give the host's memory back, after `land` or after a failure."""
        self.abandon()
        self._place.give(self._block)

    def abandon(self) -> None:
        """End the visit. The memory is not used again: something may still write there."""
        copies = [*(self._down or ()), *([] if self.twin.brought is None else [self.twin.brought])]
        self._block.last = copies[-1] if copies else None
        with self._place.lock:
            if self in self._place.writing:
                self._place.writing.remove(self)

    def _begin(self) -> None:
        # What went up last may be what comes down now, by a call of which nobody has waited.
        self.twin.brought = self._place.brought
        self._down = []
        for each in self._moved.values():
            if each.down and each.host.numel():
                if not each.is_dense:
                    self.queue.down(self.twin, each.dense, each.tensor.data)
                self._down.append(self.queue.down(self.twin, each.host, each.dense))

    def _awaits_others(self) -> bool:
        """Return whether a call that has not ended writes what this one reads."""
        written = [each.span for other in self._place.writing for each in other._moved.values() if each.up]
        return any(
            start < each.span[1] and each.span[0] < end
            for each in self._moved.values()
            if each.down
            for start, end in written
        )


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or memory for its values in one piece. `data` has a version of its own: copies are no changes by the
    script, as they are none on the CPU."""
    plain = tensor.data
    if plain.is_contiguous() and not plain.is_conj() and not plain.is_neg():
        return plain
    return torch.empty(plain.shape, dtype=plain.dtype, device=plain.device)


def _over(block: Block, start: int, like: torch.Tensor) -> torch.Tensor:
    return block.bytes[start : start + like.nbytes].view(like.dtype).view(like.shape)
