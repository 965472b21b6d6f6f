"""Subjects of `hocket verify`: buckets of a policy or a plan, or another system's program, after every pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from hocket._native import Program
from hocket.artefacts import files
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.plan import Bucket as PlanBucket
from hocket.artefacts.plan import Plan, Served, Traced
from hocket.artefacts.profile import Profile
from hocket.artefacts.tuning import Tuning
from hocket.errors import UsageError
from hocket.parameter_server import programs as served
from hocket.parameter_server.description import Description, key_of
from hocket.parameter_server.plan import among_workers
from hocket.planning import compile as planned
from hocket.planning import sites
from hocket.planning.buckets import sizes_of
from hocket.policies.load import load
from hocket.policy import trace as traced
from hocket.policy.bucketing import Bucket as TracedBucket
from hocket.policy.bucketing import Gradient
from hocket.policy.policy import Policy
from hocket.policy.topology import Topology
from hocket.tools.formats import chakra_program, foreign_program, msccl
from hocket.training.memory.scopes import key, scopes_of

MSCCL, CHAKRA = ".xml", ".et"
"""Suffixes of other systems' program files."""


@dataclass(frozen=True)
class Bucket:
    """Program: its number of gradients and elements, and its position in backward."""

    gradients: int
    elements: int
    priority: int


@dataclass(frozen=True)
class Subject:
    """Programs for `world` ranks.

    `stages` returns a bucket's program after each pass, `prove` raises if it may not run.
    """

    title: str
    world: int
    contract: str
    """Proven contract of every bucket: mean, same, none; empty where the program itself declares it."""
    buckets: tuple[Bucket, ...]
    stages: Callable[[int], Mapping[str, Program]]
    prove: Callable[[int], Program]


def of_policy(name: str, topology: Topology, *, tuning: Path | None, profile: Path | None) -> Subject:
    """Return a policy's buckets on a topology. Raises UsageError when it enqueues no gradient, PolicyError when it cannot be
    traced."""
    policy = load(name)
    context = traced.TraceContext.of(
        policy, topology, tuning=None if tuning is None else files.read(tuning, Tuning)
    )
    buckets = traced.layout(policy, _gradients(profile), context).buckets
    if not buckets:
        raise UsageError(f"{type(policy).__name__} enqueues no gradient: there is nothing to verify")
    return Subject(
        title=type(policy).__name__,
        world=topology.world,
        contract=policy.contract,
        buckets=tuple(Bucket(len(each.gradients), each.elements, each.priority) for each in buckets),
        stages=lambda at: traced.stages(policy, buckets[at], context, name=f"bucket.{at}"),
        prove=lambda at: traced.bucket_program(policy, buckets[at], context, name=f"bucket.{at}").program,
    )


def of_plan(path: Path, cluster: Path | None, tuning: Path | None) -> Subject:
    """Return a plan's buckets; those that go by policies on the hosts of a cluster, else on a host for each rank.

    Raises ArtefactError when a file cannot be read, UsageError for policies that cannot be in a plan, or when neither is needed.
    """
    plan = files.read(path, Plan)
    scopes = {key(scope.route): scope for scope in scopes_of(plan)}
    if not scopes and (tuning or (cluster and not sites.sites_of(plan))):
        raise UsageError(
            f"{path} has all that its programs depend on: --cluster is for policies and sites, --tuning for policies"
        )
    described = _served(plan)
    plan = among_workers(plan)
    topology = Topology.even(world=plan.world) if cluster is None else topology_of(cluster)
    if topology.world != plan.world:
        raise UsageError(f"{path} is for {plan.world} ranks, the cluster has {topology.world} slots")
    read = None if tuning is None else files.read(tuning, Tuning)

    def traced_bucket(at: int) -> tuple[Policy, TracedBucket, traced.TraceContext] | None:
        bucket = plan.buckets[at]
        if not isinstance(bucket.route, Traced):
            return None
        scope = scopes[key(bucket.route)]
        context = traced.TraceContext.of(scope.policy, topology, scope.own(scope.initial()), tuning=read)
        return scope.policy, TracedBucket(_gradients_of(bucket), bucket.priority), context

    def stages(at: int) -> Mapping[str, Program]:
        if at in described.keys:
            return served.key_stages(described, at, 0)
        found = traced_bucket(at)
        if found is None:
            return planned.stages(plan, at)
        return traced.stages(*found, name=f"bucket.{at}")

    def prove(at: int) -> Program:
        if at in described.keys:
            return served.key_program(described, at, 0)
        if sites.sites_of(plan):
            sites.means(at, plan, topology.hosts)
        found = traced_bucket(at)
        if found is None:
            return planned.proven(at, plan)
        return traced.bucket_program(*found, name=f"bucket.{at}").program

    contracts: set[str] = {scope.policy.contract for scope in scopes.values()}
    if described.keys:
        # A program does not have the results of an optimizer on a server.
        contracts.add("none")
    return Subject(
        title=str(path),
        world=described.world,
        contract="mean" if contracts <= {"mean"} else " or ".join(sorted({"mean", *contracts})),
        buckets=tuple(Bucket(len(each.variables), each.elements, each.priority) for each in plan.buckets),
        stages=stages,
        prove=prove,
    )


def _served(plan: Plan) -> Description:
    """Return the buckets on servers, with the programs of worker 0: those of others are the same with another rank."""
    workers = len(plan.workers)
    return Description(
        workers=workers,
        servers=plan.world - workers,
        optimizer="",
        keys={
            at: key_of(bucket, bucket.route, workers)
            for at, bucket in enumerate(plan.buckets)
            if isinstance(bucket.route, Served)
        },
        groups=(),
    )


def _gradients_of(bucket: PlanBucket) -> tuple[Gradient, ...]:
    """Return the gradients of a bucket's parts; the first part without an end has the rest."""
    return tuple(
        Gradient(name, (size,), bucket.dtype, at, len(bucket.parts) - 1 - at)
        for at, (name, size) in enumerate(sizes_of(bucket))
    )


def of_foreign(path: Path, chunk_elements: int) -> Subject:
    """Read MSCCL's XML or one rank's file of a custom collective of Chakra's. Raises ArtefactError when it cannot be read."""
    if path.suffix == MSCCL:
        program = foreign_program.program(msccl.read(path), chunk_elements)
    else:
        program = foreign_program.program(*chakra_program.read(path))

    def prove(_at: int) -> Program:
        program.verify()
        return program

    elements = sum(count for _, _, count, kind, _ in program.buffers(0) if kind == "bound")
    return Subject(
        title=str(path),
        world=program.world,
        contract="",
        buckets=(Bucket(0, elements, 0),),
        stages=lambda _at: {"read": program},
        prove=prove,
    )


def topology_of(cluster: Path) -> Topology:
    """Return ranks on the slots of a cluster file, in order."""
    read = files.read(cluster, Cluster)
    return Topology.of([host.name for host in read.hosts for _ in range(host.slots)], read)


def _gradients(profile: Path | None) -> list[Gradient]:
    """Return a profile's gradients; otherwise some of all sizes."""
    if profile is None:
        shapes = [(1000, 300), (300,), (300, 300), (300,), (7, 3, 3), (1,), (2_000_000,), (10,)]
        named = [(f"g{at}", shape, "f32") for at, shape in enumerate(shapes)]
    else:
        named = [(each.name, each.shape, each.dtype) for each in files.read(profile, Profile).gradients]
    last = len(named) - 1
    return [
        Gradient(name, tuple(shape), dtype, last - at, at) for at, (name, shape, dtype) in enumerate(named)
    ]
