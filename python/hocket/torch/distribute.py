"""`distribute`, which makes a model and its optimizer train together with those of the other ranks, and what goes with it."""

from __future__ import annotations

import contextlib
import functools
import sys
from pathlib import Path
from typing import Any, TypeVar, get_args
from weakref import WeakKeyDictionary

import msgspec

import torch
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Plan
from hocket.artefacts.trace import write_run
from hocket.errors import UsageError
from hocket.launch.first_file import of_rank_0
from hocket.launch.rendezvous import Job
from hocket.parameter_server.choice import ParameterServer
from hocket.planning.default import Choice, by_cluster, by_hosts, default_plan
from hocket.policies.load import load
from hocket.policy.policy import Policy, Value
from hocket.policy.topology import Topology
from hocket.policy.trace import TraceContext
from hocket.settings import Settings
from hocket.torch import buckets as bucket_memory
from hocket.torch import gradients, parameter_servers
from hocket.torch import join as joining
from hocket.torch.module_buffers import BeforeForward, Buffers, Keep
from hocket.torch.parameters import ParameterSession
from hocket.torch.process import Process, joined
from hocket.torch.profiler import Profiler
from hocket.torch.push_pull import PushPullSession
from hocket.torch.reorder import Reorder
from hocket.torch.replicate import replicate
from hocket.torch.run_file import RunFile, run_info
from hocket.torch.serve import serve
from hocket.torch.session import Session
from hocket.torch.source import Planned, of_plan, of_policy
from hocket.torch.spans import Spans

Model = TypeVar("Model", bound=torch.nn.Module)
Optimizer = TypeVar("Optimizer", bound=torch.optim.Optimizer)

_sessions: WeakKeyDictionary[torch.nn.Module, Session | ParameterSession | PushPullSession | Profiler] = (
    WeakKeyDictionary()
)


def distribute(
    model: Model,
    optimizer: Optimizer,
    *,
    plan: Plan | None = None,
    policy: Policy | None = None,
    parameter_server: ParameterServer | None = None,
    buffers: Keep | None = None,
    settings: Settings | None = None,
) -> tuple[Model, Optimizer]:
    """Train `model` together with the other ranks of the job. The training loop stays as it is.

    All ranks start from rank 0's parameters, buffers and optimizer state. After `loss.backward()`, every gradient is the mean
    over all ranks, as with DistributedDataParallel. The two objects are returned, not wrapped, so `state_dict` is unchanged.
    `with model.no_sync():` accumulates gradients without communication.

    Args:
        model: on the CPU; parameters that do not require gradients are left alone.
        optimizer: over parameters of the model.
        plan: default: the plan file of `settings`, else one for the cluster of `settings`, else one from the hosts alone. Rank 0's
            files count. A default plan, and a policy, follows the order in which backward makes gradients, which the first step
            records. If it gives other buckets than the reverse of registration, an epoch with these begins after the second step.
        policy: how gradients travel, instead of a plan; default: the policy of `settings`.
        parameter_server: keep parameters on servers, the job's last ranks, instead of all-reducing gradients; default: from
            `settings`. On a rank that serves, this call does not return: it serves, then ends the process (SystemExit).
        buffers: how the model's buffers are kept equal: `"after_step"` (default), `"before_forward"` or `"none"`.
        settings: default: from the environment.

    Raises:
        RendezvousError: ranks do not meet, or their models differ.
        UsageError: the plan is for another model, or the model is distributed already.
        PolicyError: the policy cannot be traced or is refused.
        PeerError: later, out of `backward`: another rank died or gave up.

    >>> model = torch.nn.Linear(3, 2)
    >>> model, optimizer = distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    >>> model(torch.ones(1, 3)).sum().backward(); optimizer.step()
    """
    if model in _sessions:
        raise UsageError("the model is distributed already\nhint: call `distribute` once, before the loop")
    parameters = gradients.trained(model)
    settings = settings or Settings.from_environment()
    if policy is None and settings.policy is not None and plan is None:
        policy = load(settings.policy)
    if policy is not None and (plan is not None or settings.plan is not None):
        raise UsageError("a plan and a policy both say how gradients travel\nhint: give one of them")
    if buffers not in (None, *get_args(Keep)):
        raise UsageError(f"buffers={buffers!r}: known are {', '.join(map(repr, get_args(Keep)))}")
    parameter_server = parameter_server or ParameterServer.of(settings)
    if parameter_server is not None and buffers not in (None, "none"):
        raise UsageError(
            f"buffers={buffers!r} with parameter servers: workers do not step together, each keeps its own buffers\n"
            'hint: buffers="none", or no parameter servers'
        )
    if settings.reorder_interval_s is not None and (policy is not None or parameter_server is not None):
        raise UsageError(
            "HOCKET_REORDER_INTERVAL_S is for plans: a policy decides for itself, and parameter servers have no order\n"
            "hint: leave it unset"
        )
    if parameter_server is not None:
        _refuse_with_servers(plan, policy, settings)
    process = joined(settings)
    job = process.job
    if parameter_server is not None and job.rank >= parameter_server.workers(job.world):
        serve(process, parameter_server)
        sys.exit(0)
    try:
        if parameter_server is not None:
            spans = _spans(model, optimizer, process, settings)
            return _with_servers(model, optimizer, parameters, parameter_server, process=process, spans=spans)
        gradients.agree(model, job)
        if settings.profile_out is not None:
            _sessions[model] = Profiler(model, optimizer, parameters, job, Path(settings.profile_out))
            return _with_no_sync(model), optimizer
        session = _session_of(
            model,
            optimizer,
            parameters=parameters,
            plan=plan,
            policy=policy,
            process=process,
            settings=settings,
            buffers=buffers or "after_step",
        )
    except BaseException as error:
        process.abort(f"{type(error).__name__}: {error}")
        raise
    _sessions[model] = session
    process.also_close(session.close)
    session.source.start_timer()
    return _with_no_sync(model), optimizer


def _with_servers(
    model: Model,
    optimizer: Optimizer,
    parameters: dict[str, torch.nn.Parameter],
    choice: ParameterServer,
    *,
    process: Process,
    spans: Spans | None,
) -> tuple[Model, Optimizer]:
    session, programs = parameter_servers.start(
        model, optimizer, parameters=parameters, choice=choice, process=process, spans=spans
    )
    if spans is not None and process.job.rank == 0:
        world = process.job.world
        info = run_info(process.job, None, programs)
        write_run(
            spans.directory, msgspec.structs.replace(info, roles=parameter_servers.roles(choice, world))
        )
    _sessions[model] = session
    process.also_close(session.close)
    return _with_no_sync(model), optimizer


def _refuse_with_servers(plan: Plan | None, policy: Policy | None, settings: Settings) -> None:
    for what, given in (
        ("a plan", plan or settings.plan),
        ("a policy", policy or settings.policy),
        ("a profile of the script", settings.profile_out),
        ("a change of rank order", settings.reorder_interval_s),
    ):
        if given is not None:
            raise UsageError(
                f"{what} and parameter servers: {what} is of all-reduced gradients\nhint: leave one of them out"
            )
    if any(isinstance(each, PushPullSession) for each in _sessions.values()):
        raise UsageError("parameter servers serve one model of a process, and have one already")


def _session_of(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    *,
    parameters: dict[str, torch.nn.Parameter],
    plan: Plan | None,
    policy: Policy | None,
    process: Process,
    settings: Settings,
    buffers: Keep,
) -> Session | ParameterSession:
    job = process.job
    cluster = process.cluster
    if policy is None:
        plan = plan or of_rank_0(job, "plan", settings.plan, Plan)
        planned = plan or _default_plan(parameters, job, cluster)
        if plan is not None and plan.world != job.world:
            raise UsageError(
                f"the plan is for {plan.world} ranks, the job has {job.world}\nhint: make a new plan"
            )
        reorder = None
        if settings.reorder_interval_s is not None:
            first = (
                planned if isinstance(planned, Plan) else planned(bucket_memory.assumed_backward(parameters))
            )
            reorder = Reorder(first, job, process.engine, cluster, interval_s=settings.reorder_interval_s)
        source = of_plan(planned, parameters, reorder)
    else:
        context = TraceContext.of(policy, Topology.of(job.hosts, cluster), tuning=process.tuning)
        source = of_policy(policy, parameters, job, context, process.abort)
    replicate(model, optimizer, job, process.engine)
    spans = _spans(model, optimizer, process, settings)
    kept = Buffers(model, buffers, job, process.engine)
    run_file = RunFile(spans, job, source, cluster)
    session: Session | ParameterSession
    if policy is not None and policy.exchanges == "parameters":
        session = ParameterSession(
            optimizer,
            parameters=parameters,
            source=source,
            job=job,
            engine=process.engine,
            libraries=process.libraries,
            spans=spans,
            buffers=kept,
            loaded=run_file.loaded,
        )
    else:
        session = Session(
            model,
            optimizer,
            parameters=parameters,
            source=source,
            job=job,
            engine=process.engine,
            libraries=process.libraries,
            spans=spans,
            buffers=kept,
            loaded=run_file.loaded,
        )
    if kept.kept and buffers == "before_forward":
        session.before_forward = BeforeForward(model, kept, session.communicates)
    return session


def no_sync(model: torch.nn.Module) -> contextlib.AbstractContextManager[None]:
    """A context in which backward accumulates gradients without communication; also `model.no_sync()`."""
    return _session(model).no_sync()


def join(
    *models: torch.nn.Module,
    divide_by_initial_world_size: bool = True,
    throw_on_early_termination: bool = False,
) -> contextlib.AbstractContextManager[None]:
    """Ranks with unequal numbers of batches: `with hk.join(model):` around the loop, on all ranks.

    A rank that leaves the body first takes part in the others' reductions with zeros, until all ranks have left. Then all go on
    from the state of the highest rank among those that finished last: parameters, buffers and, other than with the `join` of
    DistributedDataParallel, the optimizer's state. Inside, a step is one forward and backward with communication; buffers are
    sent before its forward, from the highest rank that has a batch, as DistributedDataParallel does.

    Args:
        models: distributed ones, in the order in which their backward passes come.
        divide_by_initial_world_size: True: gradients are sums over the ranks that have batches, divided by the number of all
            ranks. False: divided by the number of those that have batches.
        throw_on_early_termination: True: when the first rank has finished, all ranks raise UsageError at the next forward.

    Raises:
        UsageError: a finished rank cannot contribute zeros to a model's reductions: policies that promise less than the mean,
            local SGD, parameter servers.
    """
    windows = []
    for model in models:
        session = _session(model)
        if isinstance(session, Profiler):
            return contextlib.nullcontext()
        why = joining.refusal(session)
        if why is not None:
            raise UsageError(f"join: {why}\nhint: give every rank the same number of batches")
    for model in models:
        session = _session(model)
        assert isinstance(session, Session)  # noqa: S101  # others were refused
        windows.append(
            joining.Window(
                model,
                session,
                by_initial_world=divide_by_initial_world_size,
                throws=throw_on_early_termination,
            )
        )
    return joining.joined_training(windows)


def log(model: torch.nn.Module, **values: Any) -> None:
    """Add values of this step (`step=3, loss=2.5`) to the trace. Without a trace, this does nothing."""
    session = _session(model)
    if not isinstance(session, Profiler) and session.spans is not None:
        session.spans.log(**values)


def record(model: torch.nn.Module, **values: float) -> None:
    """Add values of this step to this rank's statistics, which a policy reads. Without a policy, this does nothing."""
    session = _session(model)
    if not isinstance(session, Profiler | PushPullSession):
        for name, value in values.items():
            session.source.record(name, value)


def clip_grad_norm_(model: torch.nn.Module, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """`torch.nn.utils.clip_grad_norm_` over all gradients of a distributed model. With gates, it waits for all of them first."""
    session = _session(model)
    if isinstance(session, PushPullSession):
        raise UsageError(
            "gradients are not there to be clipped: they were pushed, and parameter servers update with them\n"
            "hint: clip without parameter servers, or scale the loss"
        )
    if isinstance(session, Session) and session.gates is not None:
        session.gates.open_all()
    return torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm, norm_type)


def agreed(model: torch.nn.Module) -> dict[str, Value]:
    """The values on which all ranks agree in the current epoch, by name, and its number as `epoch`."""
    session = _session(model)
    if isinstance(session, Profiler | PushPullSession):
        return {"epoch": 0}
    current = session.source.epochs.current
    return {**current.agreed, "epoch": current.number}


def rank(model: torch.nn.Module) -> int:
    """This process's rank in the job of a distributed model."""
    return _session(model).job.rank


def world(model: torch.nn.Module) -> int:
    """Number of ranks in the job of a distributed model."""
    return _session(model).job.world


def _session(model: torch.nn.Module) -> Session | ParameterSession | PushPullSession | Profiler:
    session = _sessions.get(model)
    if session is None:
        raise UsageError(
            "the model is not distributed\nhint: model, optimizer = hk.distribute(model, optimizer)"
        )
    return session


def _spans(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, process: Process, settings: Settings
) -> Spans | None:
    """A trace is of one model: the first one that the process distributes."""
    traced = (each for each in _sessions.values() if not isinstance(each, Profiler))
    if settings.trace is None or any(each.spans for each in traced):
        return None
    return Spans(model, optimizer, process.engine, Path(settings.trace), process.job.rank)


def _default_plan(parameters: dict[str, torch.nn.Parameter], job: Job, cluster: Cluster | None) -> Planned:
    """The plan of a job that was given none, from the order in which backward makes gradients."""
    known = {
        name: Gradient(name, tuple(each.shape), gradients.DTYPES[each.dtype])
        for name, each in parameters.items()
    }
    choice = by_hosts(job.hosts)
    if cluster is not None:
        # Rank 0's, since another machine may round a prediction another way.
        chosen = by_cluster(list(reversed(known.values())), job.hosts, cluster) if job.rank == 0 else None
        given = job.store.gather(
            "plan/choice", job.rank, job.world, msgspec.to_builtins(chosen), job.settings.start_timeout_s
        )
        choice = msgspec.convert(given[0], Choice)
    return lambda backward: default_plan([known[name] for name in backward], choice)


def _with_no_sync(model: Model) -> Model:
    # A partial of a module's function: the model stays picklable and copyable.
    model.no_sync = functools.partial(no_sync, model)  # type: ignore[assignment]
    return model
