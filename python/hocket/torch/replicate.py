"""Makes all ranks start from rank 0's state: parameters, buffers, and the optimizer's state if it has any."""

from __future__ import annotations

import io
from collections.abc import Sequence

import torch
from hocket import _native
from hocket.launch.rendezvous import Job
from hocket.planners.compile import broadcast_program


def replicate(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, job: Job, engine: _native.Engine
) -> None:
    """Copy rank 0's state to all ranks, bit for bit."""
    if job.world == 1:
        return
    with torch.no_grad():
        _tensors([*model.parameters(), *model.buffers()], job, engine)
    _optimizer_state(optimizer, job, engine)


def _tensors(tensors: Sequence[torch.Tensor], job: Job, engine: _native.Engine) -> None:
    # A flat copy of the whole state, once: bytes, so that integers and every float cross unchanged.
    sizes = [each.numel() * each.element_size() for each in tensors]
    if sum(sizes) == 0:
        return
    memory = engine.allocate(sum(sizes))
    flat = torch.frombuffer(memory, dtype=torch.uint8)
    parts = flat.split(sizes)
    if job.rank == 0:
        for each, part in zip(tensors, parts, strict=True):
            part.copy_(each.detach().contiguous().reshape(-1).view(torch.uint8))
    _broadcast(memory, "initial state", job, engine)
    if job.rank != 0:
        for each, part in zip(tensors, parts, strict=True):
            # The part may start anywhere; a clone is aligned for any type.
            each.copy_(part.clone().view(each.dtype).view(each.shape))


def _optimizer_state(optimizer: torch.optim.Optimizer, job: Job, engine: _native.Engine) -> None:
    saved = b""
    if job.rank == 0 and optimizer.state:
        buffer = io.BytesIO()
        torch.save(optimizer.state_dict(), buffer)
        saved = buffer.getvalue()
    size_bytes = job.store.gather("optimizer", job.rank, job.world, len(saved), job.settings.start_timeout_s)[
        0
    ]
    if size_bytes == 0:
        return
    memory = engine.allocate(size_bytes)
    view = memoryview(memory)
    if job.rank == 0:
        view[:] = saved
    _broadcast(memory, "optimizer state", job, engine)
    if job.rank != 0:
        optimizer.load_state_dict(torch.load(io.BytesIO(bytes(view)), weights_only=True))


def _broadcast(memory: _native.Memory, label: str, job: Job, engine: _native.Engine) -> None:
    program = engine.load(
        broadcast_program(job.world, len(memory)), {0: (memory, 0)}, priority=0, label=label
    )
    engine.launch(program)
    engine.wait(program, job.settings.timeout_s)
