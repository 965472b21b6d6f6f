"""`distribute`, which makes a model and its optimizer train together with those of the other ranks."""

from __future__ import annotations

import functools
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import torch

from hocket.artefacts.local import Local
from hocket.artefacts.plan import Plan
from hocket.artefacts.promise import Promise
from hocket.parameter_server.choice import ParameterServer
from hocket.policy.policy import Policy
from hocket.refusals import BUFFERS, SERVERS, refused
from hocket.settings import Settings
from hocket.torch.framework import Torch
from hocket.torch.in_training import Distributed, distributed, no_sync
from hocket.torch.members import Members
from hocket.torch.module_buffers import BeforeForward, Buffers, Keep, check_keep
from hocket.torch.profiler import Profiler
from hocket.torch.rendezvous import publish, warn_if_apart
from hocket.torch.shard import Shard
from hocket.torch.spans import watch
from hocket.torch.state_parts import TorchParts
from hocket.torch.trainable import Abandoned, check_batch_norm
from hocket.torch.watch import Watch
from hocket.training.assemble.asked import Given, agree_on_call, check_settings, policy_asked, promise_asked
from hocket.training.assemble.choice import spans_of
from hocket.training.assemble.furnish import furnish
from hocket.training.assemble.start import prepare, session_of
from hocket.training.beside.spans import Spans
from hocket.training.elastic.fetching import come
from hocket.training.loop.loop import Loop
from hocket.training.memory.gradients import agree, gradients_of
from hocket.training.process import Process, Within, joined, reporting
from hocket.training.servers.helping import help_training
from hocket.training.servers.roles import part_of, plan_with, plan_with_helpers, workers_of
from hocket.training.servers.serve import serve
from hocket.training.step.end_after import end_after

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

Model = TypeVar("Model", bound=torch.nn.Module)
Optimizer = TypeVar("Optimizer", bound=torch.optim.Optimizer)

_abandoned = Abandoned()


def distribute(
    model: Model,
    optimizer: Optimizer,
    *,
    plan: Plan | None = None,
    policy: Policy | None = None,
    promise: Promise | str | None = None,
    search: str | None = None,
    local: Local | None = None,
    parameter_server: ParameterServer | None = None,
    buffers: Keep | None = None,
    group: ProcessGroup | DeviceMesh | None = None,
    settings: Settings | None = None,
) -> tuple[Model, Optimizer]:
    """Train `model` together with the other ranks of the job. The training loop stays as it is.

    All ranks start from rank 0's parameters, buffers and optimizer state. After `loss.backward()`, every gradient is the mean
    over all ranks, as with DistributedDataParallel. The two objects are returned, not wrapped, so `state_dict` is unchanged.
    `with model.no_sync():` accumulates gradients without communication; so does `model.require_backward_grad_sync = False`.

    Called again, it begins anew: with parameters that were replaced, added or unfrozen since, with another optimizer, or with a
    model that has parts of one that was distributed before.

    Args:
        model: a model on one device; parameters that do not require gradients are left alone.
        optimizer: over parameters of the model.
        plan: default: the plan file of `settings`, else a plan for the cluster of `settings`, else one from the hosts alone. Rank
            0's files count. A default plan, and a policy, follows the order in which backward makes gradients, which the first step
            records. If it gives other buckets than the reverse of registration, an epoch with these begins after the second step.
        policy: decides how gradients travel, instead of a plan; default: the policy of `settings`. With a plan: the policy of
            those of its buckets that name this class.
        promise: how far results may be from DDP's: `"exact"` (up to the order of summation), `"rounded"` (gradients in f16 on slow
            links, where that is faster), `"merged,merge=2"` (an update may be of the gradients of two iterations),
            `"delayed,delay=1,merge=2"` (and each rank goes on with its own gradients for an iteration, until the mean is
            there), `"local,local=30"` (or ranks step alone for up to 30 steps), `"uncorrected,uncorrected=1"` (late gradients with
            nothing in their place), or a `Promise`. What is used, and when, is for the plan to say. Default: from `settings`, else
            what a given plan or policy does, else exact.
        search: how long the job tries plans while it trains, such as `"20m"`, to keep the fastest one. Each is on trial for a few
            steps, in turn with the best so far, and no step is lost. Default: from `settings`, else there is no search.
        local: ranks step alone, and exchange how far they came once in several steps: `hk.Local(every=30)`. This is for networks
            that are far slower than computation. Gradients and optimizer state are then each rank's own; what `model.state_dict`
            returns is the anchor, which all ranks have alike. With `inside="rack"`, only racks step alone, and gradients are means
            of a rack's ranks. Default: by the plan.
        parameter_server: the job's last ranks are servers; default: from `settings`, else those of the plan. They hold what the
            plan says, or without one all parameters. On a rank that serves, this call does not return: it serves, then ends the
            process (SystemExit). It does the same on a rank that only owns parts of the plan's buckets. Ranks keep their parts in
            later calls.
        buffers: how the model's buffers are kept equal: `"after_step"` (default), `"before_forward"` or `"none"`.
        group: the ranks of `torch.distributed` that hold the same parameters, where a model is spread over several (pipelines): a
            group, or the dimension of a DeviceMesh over which the model is repeated. They are a job of their own: `hk.rank`,
            `hk.world`, plans and data are of this group. Default: all ranks.
        settings: settings of the job; default: from the environment.

    Raises:
        RendezvousError: ranks do not meet, or their models differ.
        ArtefactError: the plan is not sound, or for another model; later, out of the first `backward`: its merged or late
            gradients are for other batches, or another number of backwards in an iteration.
        UsageError: the plan has what sessions do not run, or plan or policy promise less than was asked for. Later, out of a
            forward or a step: the model trains parameters that it did not train when it was distributed.
        PolicyError: the policy cannot be traced or is refused.
        PeerError: later, out of `backward`: another rank died or gave up.

    >>> model = torch.nn.Linear(3, 2)
    >>> model, optimizer = distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    >>> model(torch.ones(1, 3)).sum().backward(); optimizer.step()
    """
    framework = Torch(model, optimizer)
    within, settings = _within(group, settings or Settings.from_environment())
    policy = policy_asked(plan, policy, settings)
    check_settings(policy, settings, parameter_server=parameter_server)
    promise = promise_asked(promise, settings)
    check_keep(buffers)
    parameter_server = parameter_server or ParameterServer.of(settings)
    parts = TorchParts(framework)
    given = Given(plan, policy, promise, search, local)
    prepares = functools.partial(furnish, framework, given, lambda: None)
    process = joined(settings, publish, functools.partial(come, parts), within, prepares)
    settings = process.arrival.placed(settings)
    if within is None:
        warn_if_apart(process.everyone.world)
    asked = {"plan": plan, "policy": policy, "promise": promise, "search": search, "buffers": buffers}
    agree_on_call(process, {**asked, "parameter_server": parameter_server, "local": local})
    gradients = gradients_of(framework.parameters())
    with reporting(process):
        loop = _make_room(framework, process)
    workers, plan = workers_of(
        process, plan=plan, parameter_server=parameter_server, gradients=gradients, settings=settings
    )
    part = part_of(plan, parameter_server)
    if workers is not None and process.job.rank >= workers:
        if part == "help":
            help_training(process, workers)
        else:
            serve(process, workers, Shard)
        sys.exit(0)
    with reporting(process):
        if workers is not None or process.besides is None:
            process.train_among(workers or process.everyone.world, part)
        if parameter_server is not None:
            plan = plan_with(
                parameter_server, process, plan=plan, policy=policy, gradients=gradients, settings=settings
            )
        elif settings.helpers:
            plan = plan_with_helpers(process, plan=plan, settings=settings)
        if settings.profile_out is not None:
            agree(framework.parameters(), process.job)
            profiler = Profiler(framework, process, Path(settings.profile_out))
            made = Distributed(framework, profiler, Loop(process.job))
        else:
            given = given._replace(plan=plan)
            made = _trained(framework, parts, given, process=process, settings=settings, keep=buffers)
    made = replace(made, loop=loop or made.loop, watch=Watch(framework, made.session))
    distributed[model] = made
    framework.on_step(made.loop.stepped)
    if settings.steps_max is not None and settings.profile_out is None:
        end_after(settings.steps_max, framework, made.session)
    process.also_close(made.session.close)
    made.session.start()
    # A partial of a module's function: the model stays picklable and copyable.
    model.no_sync = functools.partial(no_sync, model)  # type: ignore[assignment]
    return model, optimizer


def _within(group: ProcessGroup | DeviceMesh | None, settings: Settings) -> tuple[Within | None, Settings]:
    """Return the job that a group is, and the settings in it; None: the job of all ranks."""
    if group is None:
        return None, settings
    from hocket.torch.group import within  # noqa: PLC0415  # loads meshes, which few need

    return within(group, settings)


def _make_room(framework: Torch, process: Process) -> Loop | None:
    """End models that were distributed before with some of these parameters, on all ranks; return the loop of the same model."""
    model = framework.model
    trained = {id(each) for each in framework.trained.values()}
    before = {
        each: made
        for each, made in list(distributed.items())
        if each is model or not trained.isdisjoint(map(id, made.framework.trained.values()))
    }
    if not before:
        return None
    agree(framework.parameters(), process.job)
    of_model = {id(each) for each in type(model).parameters(model)}
    for each, made in before.items():
        made.session.retire()
        process.no_longer_close(made.session.close)
        for part in (made.watch, made.before_forward):
            if part is not None:
                part.remove()
        made.framework.release()
        del distributed[each]
        left = {name: own for name, own in made.framework.trained.items() if id(own) not in of_model}
        _abandoned.add(left, type(each).__name__, type(model).__name__)
    _abandoned.take(framework.trained.values())
    return before[model].loop if model in before else None


def _trained(
    framework: Torch,
    parts: TorchParts,
    asked: Given,
    *,
    process: Process,
    settings: Settings,
    keep: Keep | None,
) -> Distributed:
    """Distribute a model whose gradients are reduced or pushed."""
    model = framework.model
    if process.job.world > 1:
        check_batch_norm(model)
    if process.is_newcomer:
        members = Members(framework, parts, process=process, settings=settings, asked=asked, keep=keep)
        return Distributed(framework, *members.come(lambda: _spans(framework, process, settings)))
    source = prepare(framework, asked, process=process, settings=settings)
    if not source.in_step and keep not in (None, "none"):
        hint = 'buffers="none", or a plan in which some buckets are reduced'
        raise refused(SERVERS, BUFFERS, what=f"buffers={keep!r}", hint=hint)
    keep = keep or ("after_step" if source.in_step else "none")
    if process.elastic:
        members = Members(framework, parts, process=process, settings=settings, asked=asked, keep=keep)
        return Distributed(framework, *members.begin(source, _spans(framework, process, settings)))
    buffers = Buffers(model, keep, process.job, process.engine)
    spans = _spans(framework, process, settings)
    session = session_of(framework, source, process=process, companion=buffers, spans=spans)
    before_forward = None
    if keep == "before_forward":
        before_forward = BeforeForward(model, buffers, session.communicates)
    return Distributed(framework, session, Loop(process.job), buffers, before_forward)


def _spans(framework: Torch, process: Process, settings: Settings) -> Spans | None:
    spans = spans_of(process, settings)
    if spans is not None:
        watch(spans, framework.model, framework.optimizer)
    return spans
