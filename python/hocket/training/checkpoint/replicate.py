"""Copies of one state on all ranks: parameters, buffers, and the optimizer state if there is any."""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import nullcontext

import numpy as np

from hocket import _native
from hocket.job.rendezvous import Job
from hocket.planning.compile import broadcast_program
from hocket.training.memory.framework import Model
from hocket.training.memory.state_parts import StateBytes

BLOCK_BYTES = 1 << 20
WORD_BYTES = 8
WINDOW_BYTES = 16 << 20
"""Bytes that travel at once, and have their own memory."""
WINDOWS = 2
"""Number of windows: one is written or read while another one travels."""

log = logging.getLogger("hocket.training")


def replicate(
    framework: Model,
    job: Job,
    engine: _native.Engine,
    holders: Sequence[int] = (0,),
    *,
    held: int | None = None,
) -> None:
    """Copy the state of the first of the ranks `holders` to all ranks that are not holders, bit for bit.

    The other holders keep their state, and share the work as far as their state is the same. `held`: the first so many arrays
    of the state, and the optimizer's, are held by all; None: none is.
    """
    targets = [each for each in range(job.world) if each not in holders]
    if not targets:
        return
    sources = near(holders, job.hosts)
    takes = job.rank in targets
    with framework.filling() if takes else nullcontext(framework.state()) as whole:
        state = whole[held:]
        # Equal models have states of equal sizes.
        equal = sources if not any(map(len, state)) else _equal(state, "model", job, sources)
        if job.rank == equal[0] and equal != sources:
            others = " and ".join(f"rank {each}" for each in sources if each not in equal)
            log.warning(
                "%s has other parameters or buffers than rank %d, which newcomers get", others, job.rank
            )
        copy(state, "model state", job, engine, sources=equal, targets=targets)
    if held is None:
        saved = framework.optimizer_state() if job.rank in sources else b""
        copied = copy_saved(saved, "optimizer", job, engine, sources=sources, targets=targets)
        if copied:
            framework.load_optimizer_state(copied)


def copy_saved(
    saved: bytes,
    what: str,
    job: Job,
    engine: _native.Engine,
    *,
    sources: Sequence[int],
    targets: Sequence[int],
) -> bytes:
    """Copy what the first of the sources has saved, to which others may add parts if they have the same. All ranks call it. Return
    it on targets, and nothing elsewhere."""
    sizes = job.store.gather(what, job.rank, job.world, len(saved), job.settings.start_timeout_s)
    size_bytes = sizes[sources[0]]
    if not size_bytes:
        return b""
    # Equal states may have different bytes: those of another length are no source of parts.
    alike = tuple(each for each in sources if sizes[each] == size_bytes)
    own = np.frombuffer(saved, np.uint8) if job.rank in alike else np.empty(size_bytes, np.uint8)
    equal = _equal([own], f"{what}'s", job, alike)
    copy([own], f"{what} state", job, engine, sources=equal, targets=targets)
    return own.tobytes() if job.rank in targets else b""


def near(holders: Sequence[int], hosts: Sequence[str]) -> tuple[int, ...]:
    """Return the best sources for the other ranks: holders on their host, if all others are on one; else all holders.

    >>> near([0, 1, 2], ["a", "a", "b", "b"])
    (2,)
    >>> near([0, 1], ["a", "a", "b"])
    (0, 1)
    """
    others = {host for rank, host in enumerate(hosts) if rank not in holders}
    return tuple(each for each in holders if {hosts[each]} == others) or tuple(holders)


def _equal(state: Sequence[StateBytes], what: str, job: Job, sources: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sources that have the same bytes as the first one."""
    if len(sources) == 1:
        return sources
    own = digest(state) if job.rank in sources else None
    digests = job.store.gather(f"{what} digest", job.rank, job.world, own, job.settings.start_timeout_s)
    return tuple(each for each in sources if digests[each] == digests[sources[0]])


def digest(state: Sequence[StateBytes]) -> str:
    """Return a digest of the sums of all blocks' 64-bit words, which memory delivers faster than any hash consumes them. The digest
    finds ranks that went apart by mistake; it is no protection against anybody."""
    found = hashlib.sha256()
    for each in state:
        whole = len(each) // WORD_BYTES * WORD_BYTES
        words = each[:whole].view(np.uint64)
        starts = np.arange(0, len(words), BLOCK_BYTES // WORD_BYTES)
        found.update((np.add.reduceat(words, starts) if len(words) else words).tobytes())
        found.update(each[whole:].tobytes())
    return found.hexdigest()


def copy(
    state: Sequence[StateBytes],
    label: str,
    job: Job,
    engine: _native.Engine,
    *,
    sources: Sequence[int],
    targets: Sequence[int],
) -> None:
    """Copy from the sources' `state` into the targets', one window after the other, so that memory is filled while the network
    works. All ranks call it."""
    size_bytes = sum(map(len, state))
    if not size_bytes:
        return
    window_bytes = min(WINDOW_BYTES, size_bytes)
    program = broadcast_program(job.world, window_bytes, sources, targets)
    memories = [engine.allocate(window_bytes) for _ in range(WINDOWS)]
    free = deque((each, engine.load(program, {0: (each, 0)}, priority=0, label=label)) for each in memories)
    under_way: deque[tuple[int, _native.Memory, int]] = deque()

    def finish() -> None:
        start, memory, loaded = under_way.popleft()
        engine.wait(loaded, job.settings.timeout_s)
        if job.rank in targets:
            for own, part in _parts(state, start, memory):
                own[:] = part
        free.append((memory, loaded))

    for start in range(0, size_bytes, window_bytes):
        if not free:
            finish()
        memory, loaded = free.popleft()
        if job.rank in sources:
            for own, part in _parts(state, start, memory):
                part[:] = own
        engine.launch(loaded)
        under_way.append((start, memory, loaded))
    while under_way:
        finish()
    for _, loaded in free:
        engine.unload(loaded)


def _parts(
    state: Sequence[StateBytes], start: int, memory: _native.Memory
) -> Iterator[tuple[StateBytes, StateBytes]]:
    """Yield matching parts of the state from byte `start` on, and of the memory, as far as that goes."""
    window = np.frombuffer(memoryview(memory), np.uint8)
    at = 0
    for each in state:
        first, end = max(at, start), min(at + len(each), start + len(window))
        if first < end:
            yield each[first - at : end - at], window[first - start : end - start]
        at += len(each)
