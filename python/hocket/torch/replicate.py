"""Makes all ranks go on from one rank's state: parameters, buffers, and the optimizer's state if it has any."""

from __future__ import annotations

import io
from collections.abc import Sequence

import torch
from hocket import _native
from hocket.launch.rendezvous import Job
from hocket.planning.compile import broadcast_program


def replicate(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    job: Job,
    engine: _native.Engine,
    source: int = 0,
) -> None:
    """Copy the state of rank `source` to all ranks, bit for bit."""
    if job.world == 1:
        return
    with torch.no_grad():
        _tensors([*model.parameters(), *model.buffers()], job, engine, source)
    _optimizer_state(optimizer, job, engine, source)


def _tensors(tensors: Sequence[torch.Tensor], job: Job, engine: _native.Engine, source: int) -> None:
    # A flat copy of the whole state, once: bytes, so that integers and every float cross unchanged.
    sizes = [each.numel() * each.element_size() for each in tensors]
    if sum(sizes) == 0:
        return
    memory = engine.allocate(sum(sizes))
    flat = torch.frombuffer(memory, dtype=torch.uint8)
    parts = flat.split(sizes)
    if job.rank == source:
        for each, part in zip(tensors, parts, strict=True):
            part.copy_(each.detach().contiguous().reshape(-1).view(torch.uint8))
    _broadcast(memory, "model state", job, engine, source)
    if job.rank != source:
        for each, part in zip(tensors, parts, strict=True):
            # The part may start anywhere; a clone is aligned for any type.
            each.copy_(part.clone().view(each.dtype).view(each.shape))


def _optimizer_state(optimizer: torch.optim.Optimizer, job: Job, engine: _native.Engine, source: int) -> None:
    saved = b""
    if job.rank == source and optimizer.state:
        buffer = io.BytesIO()
        torch.save(optimizer.state_dict(), buffer)
        saved = buffer.getvalue()
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
        optimizer.load_state_dict(torch.load(io.BytesIO(bytes(view)), weights_only=True))


def _broadcast(memory: _native.Memory, label: str, job: Job, engine: _native.Engine, source: int) -> None:
    broadcast = broadcast_program(job.world, len(memory), root=source)
    program = engine.load(broadcast, {0: (memory, 0)}, priority=0, label=label)
    engine.launch(program)
    engine.wait(program, job.settings.timeout_s)
    engine.unload(program)
