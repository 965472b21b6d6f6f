"""Connects a worker's model and optimizer to parameter servers.

The servers receive a description of the training, all ranks load the programs, and every worker begins with worker 0's
values.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

import torch
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.trace import LoadedProgram, Roles
from hocket.launch.rendezvous import Job
from hocket.parameter_server import programs
from hocket.parameter_server.choice import ParameterServer, among_workers
from hocket.parameter_server.description import Description, Parameter
from hocket.parameter_server.programs import Loaded
from hocket.torch import hyperparameters
from hocket.torch.framework import Torch
from hocket.torch.push_pull import PushPullSession
from hocket.training.gradients import agree, gradients_of
from hocket.training.process import Process
from hocket.training.serve import DESCRIPTION
from hocket.training.spans import Spans


def start(
    framework: Torch,
    *,
    choice: ParameterServer,
    process: Process,
    spans: Spans | None,
) -> tuple[PushPullSession, tuple[LoadedProgram, ...]]:
    """The session of a worker that has met the others, and its programs for the trace.

    Raises RendezvousError: models differ. UsageError: the servers cannot run the optimizer, or workers' descriptions
    differ.
    """
    workers = choice.workers(process.job.world)
    job = among_workers(process.job, workers)
    parameters = framework.parameters()
    agree(parameters, job)
    # A parameter without elements needs no server.
    kept = [each for each in gradients_of(parameters).values() if each.elements]
    mine = _describe(framework, kept, choice, workers)
    if job.rank == 0:
        job.store.set(DESCRIPTION, msgspec.to_builtins(mine))
    description = msgspec.convert(job.store.get(DESCRIPTION, job.settings.start_timeout_s), Description)
    description.check_same(mine, job.rank)
    loaded = programs.load(process.engine, job.rank, description)
    named = tuple(
        LoadedProgram(
            program=part.number,
            label=f"{description.keys[key].name}, worker {worker}",
            bucket=key,
            worker=worker,
            bytes=description.keys[key].elements * description.keys[key].element_bytes,
        )
        for (key, worker), part in (*loaded.keys.items(), *loaded.first.items())
    )
    _share_buffers(framework.model, loaded, job, process)
    session = PushPullSession(
        framework,
        gradients=kept,
        description=description,
        loaded=loaded,
        job=job,
        engine=process.engine,
        spans=spans,
    )
    return session, named


def roles(choice: ParameterServer, world: int) -> Roles:
    """The programs for the trace."""
    return Roles(workers=choice.workers(world), servers=choice.servers, staleness=choice.staleness)


def _describe(
    framework: Torch,
    gradients: Sequence[Gradient],
    choice: ParameterServer,
    workers: int,
) -> Description:
    optimizer = framework.optimizer
    kind = hyperparameters.kind_of(optimizer)
    group = hyperparameters.group_of(
        optimizer, {each.name: framework.trained[each.name] for each in gradients}
    )
    return Description(
        workers=workers,
        servers=choice.servers,
        staleness=choice.staleness,
        optimizer=kind,
        keys=tuple(
            Parameter(name=each.name, elements=each.elements, dtype=each.dtype, group=group[each.name])
            for each in gradients
        ),
        groups=hyperparameters.groups_of(optimizer),
        buffers_bytes=sum(each.numel() * each.element_size() for each in framework.model.buffers()),
    )


def _share_buffers(model: torch.nn.Module, loaded: Loaded, job: Job, process: Process) -> None:
    """Worker 0's buffers, such as running means, to all workers; servers have none."""
    if loaded.buffers is None:
        return
    flat = torch.frombuffer(loaded.buffers.memory["buffers"], dtype=torch.uint8)
    own = list(model.buffers())
    parts = flat.split([each.numel() * each.element_size() for each in own])
    if job.rank == 0:
        for each, part in zip(own, parts, strict=True):
            part.copy_(each.detach().contiguous().reshape(-1).view(torch.uint8))
    process.engine.launch(loaded.buffers.number)
    process.engine.wait(loaded.buffers.number, job.settings.timeout_s)
    if job.rank != 0:
        for each, part in zip(own, parts, strict=True):
            # The part may start anywhere; a clone is aligned for any type.
            each.copy_(part.clone().view(each.dtype).view(each.shape))
