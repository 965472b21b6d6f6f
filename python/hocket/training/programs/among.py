"""Programs of flat buffers that some ranks of a job reduce among themselves: all ranks under DDP's hook, the replicas of a shard
under FSDP2's. They are planned or traced as if these ranks were the whole job, then placed in it. Buffers come one at a time, in
the order in which a framework makes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from hocket import typed
from hocket._native import Proofs
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Bucket, Plan
from hocket.artefacts.promise import EXACT, Promise
from hocket.errors import ArtefactError, UsageError
from hocket.planning import routes
from hocket.planning.buckets import plan_of
from hocket.planning.compile import bucket_program
from hocket.planning.default import Choice, by_cluster, by_hosts, default_plan
from hocket.planning.placed import placed
from hocket.policy import bucketing
from hocket.policy.policy import Policy
from hocket.policy.topology import Topology
from hocket.policy.trace import TraceContext
from hocket.policy.trace import bucket_program as traced_program
from hocket.refusals import ABLE, OBSERVED, check_able
from hocket.training.memory.buckets import CompiledBucket
from hocket.training.process import Process

FIRST_NUMBER, BUFFER_BITS = (1 << 31) + (1 << 24), 16
"""First number of programs that not all ranks load, and bits of it for the buffers of one hook."""


@dataclass(frozen=True)
class Among:
    """Ranks of a job that reduce among themselves: `ranks[i]` plays rank `i` of what is planned or traced for them."""

    process: Process
    ranks: tuple[int, ...]
    hook: str
    """Name of the hook in errors."""
    number: int = 0
    """Number of the hook in the job, from 0, if the ranks are not all of the job."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host of each of the ranks."""
        return tuple(self.process.job.hosts[rank] for rank in self.ranks)

    @property
    def are_all(self) -> bool:
        """True if these are the ranks of the job, in order."""
        return self.ranks == tuple(range(self.process.job.world))

    def placed(self, bucket: CompiledBucket) -> CompiledBucket:
        """Return the bucket with its program among the ranks of the job, verified. Its priority is another one for each buffer."""
        if self.are_all:
            return bucket
        program = placed(bucket.program, self.ranks, self.process.job.world)
        Proofs().verify(program)
        number = FIRST_NUMBER + (self.number << BUFFER_BITS) + bucket.priority
        return msgspec.structs.replace(bucket, program=program, number=number)


Make = Callable[[bucketing.Bucket, str], CompiledBucket]
"""Maker of a buffer's program. The name, equal on all ranks that load it, is that of the program."""


def by_policy(policy: Policy, among: Among) -> Make:
    """Return a maker of programs by a policy. PolicyError: it is refused, when a program is made.

    UsageError, then: it reads statistics.
    """
    measurements = among.process.measurements
    topology = Topology.of(among.hosts, measurements.cluster)
    context = TraceContext.of(policy, topology, tuning=measurements.tuning)

    def make(bucket: bucketing.Bucket, name: str) -> CompiledBucket:
        traced = traced_program(policy, bucket, context, name=name)
        if traced.guards:
            check_able(among.hook, ABLE - {"epochs"}, [(OBSERVED, {})])
        return among.placed(CompiledBucket.traced(bucket, traced))

    return make


class ByPlan:
    """Maker of programs by the routes of a plan, each bucket of which is one buffer."""

    def __init__(self, among: Among, given: Plan | Choice) -> None:
        """Begin without programs. `given`: a plan for these ranks, or the choice of one route for all buffers."""
        self._among, self._given = among, given
        self._made: dict[str, Bucket] = {}

    def __call__(self, bucket: bucketing.Bucket, _name: str) -> CompiledBucket:
        """Make the program of a buffer. UsageError: the plan has another number of elements for it."""
        (own,) = bucket.gradients
        gradient = Gradient(own.name, own.shape, own.dtype)
        plan = self._given if isinstance(self._given, Plan) else default_plan([gradient], self._given)
        at = next(at for at, each in enumerate(plan.buckets) if each.variables == (own.name,))
        planned = plan.buckets[at]
        if (planned.elements, planned.dtype) != (gradient.elements, gradient.dtype):
            raise UsageError(
                f"plan: `{own.name}` has {planned.elements} elements of {planned.dtype}, and came with {gradient.elements} of "
                f"{gradient.dtype}\nhint: a plan that was made of this model, with these shards"
            )
        self._made[own.name] = msgspec.structs.replace(planned, priority=bucket.priority)
        made = CompiledBucket((gradient,), bucket.priority, bucket_program(at, plan))
        return self._among.placed(made)

    def plan(self) -> Plan:
        """Return the plan of all buffers that have come."""
        if isinstance(self._given, Plan):
            return self._given
        label = f"default {routes.name(self._given.route)}"
        return plan_of(
            list(self._made.values()), len(self._among.ranks), label=label, reason=self._given.reason
        )


def check_plan(plan: Plan, among: Among, names: list[str]) -> None:
    """Raise an error unless each of the named buffers is one bucket of the plan, which is for as many ranks, with a route that is
    known.

    UsageError: it is for another number of ranks, or a route is decided while the job runs. ArtefactError: its buckets are others.
    """
    if (plan.world, plan.workers) != (len(among.ranks), tuple(range(len(among.ranks)))):
        raise UsageError(
            f"the plan is for {plan.world} ranks, and each shard has {len(among.ranks)} replicas\nhint: make a new plan"
        )
    for bucket in plan.buckets:
        routes.by(bucket)
    found = sorted(name for bucket in plan.buckets for name in bucket.variables)
    if found != sorted(names):
        other = min([each for each in {*found, *names} if found.count(each) != names.count(each)])
        raise ArtefactError(
            f"plan: FSDP2 gives one buffer for each of {', '.join(map(repr, names))}, and the plan differs in `{other}`\n"
            "hint: a bucket for each, with the whole of it; `hsdp_hook(…).plan` is such a plan"
        )


def chosen(gradients: list[Gradient], among: Among, promise: Promise | None) -> Choice:
    """Return the choice of one route for all buffers, by the network if it is known. All ranks of the job call this.

    `gradients`: of the whole backward, in its order.
    """
    job, cluster = among.process.job, among.process.measurements.network
    if cluster is None:
        return by_hosts(among.hosts)
    own = None
    if job.rank == among.ranks[0]:
        # One rank's choice, since another machine may round a prediction another way.
        own = msgspec.to_builtins(
            by_cluster(gradients, among.hosts, cluster, (promise or EXACT).without_turns())
        )
    given = job.store.gather("among/choice", job.rank, job.world, own, job.settings.start_timeout_s)
    return typed.of_builtins(given[among.ranks[0]], Choice)
