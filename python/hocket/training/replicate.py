"""Makes all ranks continue from one state: parameters, buffers, and the optimizer's state if it has any."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence

import numpy as np

from hocket import _native
from hocket._native import Program
from hocket.launch.rendezvous import Job
from hocket.planning.compile import broadcast_program
from hocket.training.framework import Model

BLOCK_BYTES = 1 << 20
WORD_BYTES = 8

log = logging.getLogger("hocket.training")


def replicate(framework: Model, job: Job, engine: _native.Engine, holders: Sequence[int] = (0,)) -> None:
    """Copy the state of the first of the ranks `holders` to all ranks that are not holders, bit for bit.

    The other holders keep what they have, and share the work as far as it is the same.
    """
    targets = [each for each in range(job.world) if each not in holders]
    if not targets:
        return
    sources = near(holders, job.hosts)
    size_bytes = framework.state_bytes()
    if size_bytes:
        # A flat copy of the whole state, once: bytes, so that integers and every float cross unchanged.
        memory = engine.allocate(size_bytes)
        if job.rank in sources:
            framework.write_state(memoryview(memory))
        equal = _equal(memory, "model", job, sources)
        if job.rank == equal[0] and equal != sources:
            others = " and ".join(f"rank {each}" for each in sources if each not in equal)
            log.warning(
                "%s has other parameters or buffers than rank %d, which newcomers get", others, job.rank
            )
        parts = broadcast_program(job.world, size_bytes, equal, targets)
        _run(parts, memory, "model state", job, engine)
        if job.rank in targets:
            framework.read_state(memoryview(memory))
    saved = framework.optimizer_state() if job.rank in sources else b""
    sizes = job.store.gather("optimizer", job.rank, job.world, len(saved), job.settings.start_timeout_s)
    if sizes[sources[0]]:
        memory = engine.allocate(sizes[sources[0]])
        if len(saved) == len(memory):
            memoryview(memory)[:] = saved
        # Equal states may be other bytes: those of another length are no source of parts.
        alike = tuple(each for each in sources if sizes[each] == len(memory))
        equal = _equal(memory, "optimizer's", job, alike)
        parts = broadcast_program(job.world, len(memory), equal, targets)
        _run(parts, memory, "optimizer state", job, engine)
        if job.rank in targets:
            framework.load_optimizer_state(bytes(memoryview(memory)))


def near(holders: Sequence[int], hosts: Sequence[str]) -> tuple[int, ...]:
    """Those that others should get the state from: the holders on the others' host, if all others are on one; else all holders.

    >>> near([0, 1, 2], ["a", "a", "b", "b"])
    (2,)
    >>> near([0, 1], ["a", "a", "b"])
    (0, 1)
    """
    others = {host for rank, host in enumerate(hosts) if rank not in holders}
    return tuple(each for each in holders if {hosts[each]} == others) or tuple(holders)


def _equal(memory: _native.Memory, what: str, job: Job, sources: tuple[int, ...]) -> tuple[int, ...]:
    """Those of the sources that have the same bytes as the first one."""
    if len(sources) == 1:
        return sources
    own = digest(memoryview(memory)) if job.rank in sources else None
    digests = job.store.gather(f"{what} digest", job.rank, job.world, own, job.settings.start_timeout_s)
    return tuple(each for each in sources if digests[each] == digests[sources[0]])


def digest(state: memoryview) -> str:
    """Of the sums of all blocks' 64-bit words, which memory gives faster than any hash takes them. It finds ranks that went apart
    by mistake; it is no protection against anybody."""
    words = np.frombuffer(state[: len(state) // WORD_BYTES * WORD_BYTES], np.uint64)
    starts = np.arange(0, len(words), BLOCK_BYTES // WORD_BYTES)
    sums = np.add.reduceat(words, starts) if len(words) else words
    return hashlib.sha256(sums.tobytes() + bytes(state[len(words) * WORD_BYTES :])).hexdigest()


def _run(broadcast: Program, memory: _native.Memory, label: str, job: Job, engine: _native.Engine) -> None:
    program = engine.load(broadcast, {0: (memory, 0)}, priority=0, label=label)
    engine.launch(program)
    engine.wait(program, job.settings.timeout_s)
    engine.unload(program)
