"""Choice of the way in which a model's ranks train together, as script and settings ask, and the source of programs for it."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from hocket import typed
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.local import Local, localized
from hocket.artefacts.needs import Need, check_kept
from hocket.artefacts.plan import Plan, Served
from hocket.artefacts.promise import EXACT, Promise
from hocket.job.known.knowledge import Memory
from hocket.job.rendezvous import Job
from hocket.parameter_server.plan import serves
from hocket.planning.asked import Asked, asked_for
from hocket.planning.default import Choice, by_cluster, by_hosts, default_plan
from hocket.planning.reordered import matters
from hocket.planning.seconds import updates
from hocket.policy.epoch import Epoch, Epochs
from hocket.policy.topology import Topology
from hocket.refusals import BESIDE_OWNERS, ELASTIC, REORDER, refused
from hocket.settings import Settings
from hocket.training.assemble.asked import Given, wanted
from hocket.training.autopilot.autopilot import Autopilot, useful
from hocket.training.autopilot.knowledge import Knowledge
from hocket.training.beside.beside import Beside
from hocket.training.beside.spans import Spans
from hocket.training.beside.timer import Timer
from hocket.training.elastic.driven import driven_source
from hocket.training.elastic.plans import has_gates
from hocket.training.elastic.source import Begin, members_source
from hocket.training.features import check_elastic, runs_elastic
from hocket.training.memory.arenas import arranged
from hocket.training.memory.framework import Remote
from hocket.training.memory.helpers import helps
from hocket.training.memory.runnable import check_runs
from hocket.training.memory.scopes import Scope
from hocket.training.prepared import Stay
from hocket.training.process import Process
from hocket.training.programs.source import Planned, ProgramSource, driven, of_plan, of_policy, planned_of
from hocket.training.programs.traced import TracedBuckets
from hocket.training.servers.helping import Helpers
from hocket.training.servers.served import ServedBuckets

log = logging.getLogger("hocket.choice")


def source_of(
    gradients: Mapping[str, Gradient],
    given: Given,
    *,
    process: Process,
    settings: Settings,
    remote: Callable[[Sequence[str]], Remote],
    keeps_plan: bool = False,
) -> ProgramSource:
    """Return the source of these gradients' programs; the same on all ranks. `remote`: see `Framework.remote`; `keeps_plan`: the
    job looks at its network as it starts, and keeps its plan.

    Raises UsageError when the plan is for another job, plan or policy promise less than asked, or there is nothing to search.
    """
    if process.elastic:
        return source_among(gradients, given, process=process, settings=settings)
    job = process.job
    plan, scopes, promise, search_s, local = wanted(given, process, settings)
    served, helpers = (None, None) if plan is None else _besides(plan, gradients, process, remote)
    if scopes:
        traced, timer = _of_policies(scopes, gradients, process)
        if plan is None:
            return of_policy(scopes[0], gradients, traced=traced, timer=timer, local=local)
        return of_plan(plan, gradients, job=job, traced=traced, timer=timer, served=served, helpers=helpers)
    may_drive = plan is None and local is None and not keeps_plan
    if may_drive and useful(job, asked=search_s is not None):
        return _driven(gradients, process, promise, search_s)
    _warn_of_search(search_s, job)
    if plan is not None and settings.reorder and useful(job, asked=True) and matters(plan):
        return _reordered(plan, gradients, process, served, helpers)
    made = plan or _alone(gradients, job, process.measurements.network, promise, local)
    return of_plan(made, gradients, job=job, served=served, helpers=helpers)


def source_among(
    gradients: Mapping[str, Gradient],
    given: Given,
    *,
    process: Stay,
    settings: Settings,
    begin: Begin | None = None,
) -> ProgramSource:
    """Return the source of programs in an elastic job, of all that meet. `begin`: epoch that it is in; None: at its start. Errors:
    as `source_of`."""
    plan, scopes, promise, search_s, local = wanted(given, process, settings)
    gated = any(each.policy.gates for each in scopes) if plan is None else has_gates(plan)
    if gated and begin is None and process.job.rank == 0:
        log.warning(
            "no layer waits at a gate: each step of an elastic job ends for all layers at once, since a loss may undo it until then"
        )
    if plan is None and not scopes:
        if local is None:
            return _driven_among(gradients, process, promise, begin, search_s)
        cluster = process.measurements.network if begin is None else process.measurements.cluster
        plan = planned_of(_alone(gradients, process.job, cluster, promise, local), Epoch(0), gradients)
    job = process.job
    if plan is None or not job.settings.reorder:
        return members_source(plan, scopes, gradients, process=process, begin=begin, local=local)
    if any(map(updates, plan.buckets)):
        raise refused(ELASTIC, BESIDE_OWNERS, what=REORDER)
    if not (useful(job, asked=True) and matters(plan)):
        # An agreed value of the job's may be the key of a plan, which is for others.
        begin = None if begin is None else (begin[0], {})
        return members_source(plan, (), gradients, process=process, begin=begin)
    knowledge = Knowledge(
        job.hosts,
        tuple(gradients.values()),
        process.measurements.cluster,
        EXACT,
        given=plan,
        check=check_elastic,
    )
    return driven_source(plan, knowledge, gradients, process=process, begin=begin)


def _besides(
    plan: Plan,
    gradients: Mapping[str, Gradient],
    process: Process,
    remote: Callable[[Sequence[str]], Remote],
) -> tuple[ServedBuckets | None, Helpers | None]:
    """Return the worker's half of parameter servers, or of helpers, if ranks that do not train have a part in the plan."""
    if not serves(plan) and not helps(plan):
        return None, None
    check_runs(plan, gradients)
    if helps(plan):
        return None, Helpers(process)
    held = [each for each in plan.buckets if isinstance(each.route, Served)]
    names = dict.fromkeys(name for each in held for name in each.variables)
    return ServedBuckets(plan, gradients, remote(list(names)), process), None


def _builders(settings: Settings) -> list[Asked]:
    """Return the builder that a search asks, if there is one; all ranks load it, so that a mistake ends all of them at once."""
    if settings.builder is None:
        return []
    asked = asked_for(settings.builder)
    for _ in asked.variants():
        pass
    return [asked]


def _reordered(
    plan: Plan,
    gradients: Mapping[str, Gradient],
    process: Process,
    served: ServedBuckets | None,
    helpers: Helpers | None,
) -> ProgramSource:
    """Return the source of a job that may change only the orders of ranks in its plan."""
    check_runs(plan, gradients)
    plan = arranged(plan, gradients)
    planned = functools.partial(_same, plan)
    job = process.job
    knowledge = Knowledge(
        job.hosts, tuple(gradients.values()), process.measurements.cluster, EXACT, given=plan
    )
    autopilot = Autopilot(
        Beside(job, process.abort),
        process.engine,
        knowledge,
        lambda _: plan,
        ready=dict if served is None else served.programs,
    )
    return driven(autopilot, planned, gradients, job, served=served, helpers=helpers)


def _driven(
    gradients: Mapping[str, Gradient], process: Process, promise: Promise, search_s: float | None
) -> ProgramSource:
    """Return the source of a job with an autopilot, which begins with the last job's plan on these hosts and model, if any."""
    job = process.job
    memory = Memory(job)
    last = _recalled(memory, gradients, process, promise)
    cluster = process.measurements.network
    if last is None:
        planned = _default_plan(gradients, job, cluster, promise)
    else:
        check_runs(last, gradients)
        planned = functools.partial(_same, last)

    def default(epoch: Epoch) -> Plan:
        return planned_of(planned, epoch, gradients)

    knowledge = Knowledge(
        job.hosts,
        tuple(gradients.values()),
        cluster,
        promise,
        memory=memory,
        search_s=search_s,
        builders=_builders(job.settings),
        guard=job.settings.guard,
        drives=job.settings.autopilot,
    )
    autopilot = Autopilot(Beside(job, process.abort), process.engine, knowledge, default)
    return driven(autopilot, planned, gradients, job)


def _driven_among(
    gradients: Mapping[str, Gradient],
    process: Stay,
    promise: Promise,
    begin: Begin | None,
    search_s: float | None,
) -> ProgramSource:
    """Return the source of an elastic job with an autopilot, of all that have met. If it trains, others wait: nobody measures."""
    job = process.job
    promise = promise.without_turns()
    if not useful(job, asked=search_s is not None):
        _warn_of_search(search_s, job)
        plan = planned_of(_default_plan(gradients, job, None, promise), Epoch(0), gradients)
        begin = None if begin is None else (begin[0], {})
        return members_source(plan, (), gradients, process=process, begin=begin)
    memory = Memory(job)
    last = _recalled(memory, gradients, process, promise)
    cluster = process.measurements.network if begin is None else process.measurements.cluster
    if last is not None and runs_elastic(last):
        plan = last
    else:
        plan = planned_of(_default_plan(gradients, job, cluster, promise), Epoch(0), gradients)
    knowledge = Knowledge(
        job.hosts,
        tuple(gradients.values()),
        cluster,
        promise,
        memory=memory,
        search_s=search_s,
        builders=_builders(job.settings),
        check=check_elastic,
        drives=job.settings.autopilot,
    )
    return driven_source(plan, knowledge, gradients, process=process, begin=begin)


def _warn_of_search(search_s: float | None, job: Job) -> None:
    """Warn of a search that was asked for, and has nothing to try."""
    if search_s is not None and job.rank == 0:
        log.warning("nothing is searched: a job on one host, or on too many to measure, has no plans to try")


def _recalled(
    memory: Memory, gradients: Mapping[str, Gradient], process: Stay, promise: Promise
) -> Plan | None:
    """Return the last plan of an earlier job on the same hosts and model, if any; that job's network counts as known."""
    known = memory.recall(tuple(gradients.values()), promise)
    if known.cluster is None or process.measurements.cluster is not None:
        # A cluster file of the user's may say something else.
        return None
    process.measurements.recall(known.cluster)
    return known.plan


def _same(plan: Plan, _backward: Sequence[str]) -> Plan:
    return plan


def _of_policies(
    scopes: Sequence[Scope], gradients: Mapping[str, Gradient], process: Process
) -> tuple[TracedBuckets, Callable[[Epochs], Timer]]:
    """Return the tracer of the buckets, and a function that makes their timer."""
    job = process.job
    topology = Topology.of(job.hosts, process.measurements.cluster)
    traced = TracedBuckets(scopes, gradients, job=job, topology=topology, tuning=process.measurements.tuning)

    def timer(epochs: Epochs) -> Timer:
        beside = Beside(job, process.abort)
        return Timer(scopes, beside, topology=topology, epochs=epochs, guards=lambda: traced.guards)

    return traced, timer


def spans_of(process: Process, settings: Settings) -> Spans | None:
    """Return the spans of the first model that the process distributes, if a trace is written."""
    if settings.trace is None or process.traced:
        return None
    process.traced = True
    return Spans(process.engine, Path(settings.trace), process.job.rank)


def _alone(
    gradients: Mapping[str, Gradient],
    job: Job,
    cluster: Cluster | None,
    promise: Promise,
    local: Local | None,
) -> Planned:
    """Return the default plan, by which ranks step alone if that is asked for."""
    if local is None:
        return _default_plan(gradients, job, cluster, promise)
    # Embeddings move as a whole, whatever rows of them a gradient touches.
    dense = {name: msgspec.structs.replace(each, sparse=False) for name, each in gradients.items()}
    planned = _default_plan(dense, job, cluster, promise, buckets_min=local.fragments)
    return lambda backward: localized(planned(backward), local)


def _default_plan(
    gradients: Mapping[str, Gradient],
    job: Job,
    cluster: Cluster | None,
    promise: Promise,
    *,
    buckets_min: int = 1,
) -> Planned:
    """Return the plan of a job that was given none, from the order in which backward makes gradients."""
    choice = by_hosts(job.hosts)
    if cluster is not None:
        # The choice is rank 0's, since another machine may round a prediction another way.
        chosen = None
        if job.rank == 0:
            chosen = by_cluster(list(gradients.values())[::-1], job.hosts, cluster, promise)
        given = job.store.gather(
            "plan/choice", job.rank, job.world, msgspec.to_builtins(chosen), job.settings.start_timeout_s
        )
        choice = typed.of_builtins(given[0], Choice)
        if choice.codec != "none":
            check_kept(promise, [Need("codec", choice.codec, "links")], "rank 0's choice")
    return lambda backward: default_plan(
        [gradients[name] for name in backward], choice, buckets_min=buckets_min
    )
