"""Makes all ranks continue from one rank's state: parameters, buffers, and the optimizer's state if it has any."""

from __future__ import annotations

from hocket import _native
from hocket.launch.rendezvous import Job
from hocket.planning.compile import broadcast_program
from hocket.training.framework import Model


def replicate(framework: Model, job: Job, engine: _native.Engine, source: int = 0) -> None:
    """Copy the state of rank `source` to all ranks, bit for bit."""
    if job.world == 1:
        return
    size_bytes = framework.state_bytes()
    if size_bytes:
        # A flat copy of the whole state, once: bytes, so that integers and every float cross unchanged.
        memory = engine.allocate(size_bytes)
        if job.rank == source:
            framework.write_state(memoryview(memory))
        _broadcast(memory, "model state", job, engine, source)
        if job.rank != source:
            framework.read_state(memoryview(memory))
    _optimizer_state(framework, job, engine, source)


def _optimizer_state(framework: Model, job: Job, engine: _native.Engine, source: int) -> None:
    saved = framework.optimizer_state() if job.rank == source else b""
    size_bytes = job.store.gather("optimizer", job.rank, job.world, len(saved), job.settings.start_timeout_s)[
        source
    ]
    if size_bytes == 0:
        return
    memory = engine.allocate(size_bytes)
    view = memoryview(memory)
    if job.rank == source:
        view[:] = saved
    _broadcast(memory, "optimizer state", job, engine, source)
    if job.rank != source:
        framework.load_optimizer_state(bytes(view))


def _broadcast(memory: _native.Memory, label: str, job: Job, engine: _native.Engine, source: int) -> None:
    broadcast = broadcast_program(job.world, len(memory), root=source)
    program = engine.load(broadcast, {0: (memory, 0)}, priority=0, label=label)
    engine.launch(program)
    engine.wait(program, job.settings.timeout_s)
    engine.unload(program)
