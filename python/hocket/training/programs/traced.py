"""Buckets with policies: the plan of a whole-model policy, and the programs of a plan's traced buckets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.needs import declared
from hocket.artefacts.plan import Bucket, Part, Plan, Schedule, Traced
from hocket.artefacts.tuning import Tuning
from hocket.job.rendezvous import Job
from hocket.policy import bucketing
from hocket.policy.epoch import Epoch
from hocket.policy.observed import Guard
from hocket.policy.topology import Topology
from hocket.policy.trace import TraceContext, layout
from hocket.training.memory import buckets as bucket_memory
from hocket.training.memory.buckets import CompiledBucket
from hocket.training.memory.scopes import Scope, key
from hocket.training.programs import shared


class TracedBuckets:
    """Tracer of a job's policies. `guards`: the assumptions of the traces in the last call of `programs`."""

    def __init__(
        self,
        scopes: Sequence[Scope],
        gradients: Mapping[str, Gradient],
        *,
        job: Job,
        topology: Topology,
        tuning: Tuning,
        agrees: Callable[[Epoch], bool] = lambda _: True,
    ) -> None:
        """Begin without traces. `scopes`: the policies of all buckets. `agrees`: all ranks compare their traces of an epoch."""
        self.scopes = {key(scope.route): scope for scope in scopes}
        self.guards: list[Guard] = []
        self._layout_guards: list[Guard] = []
        self._planned: tuple[Epoch, Plan, list[Guard]] | None = None
        self._gradients, self._job = gradients, job
        self._topology, self._tuning, self._agrees = topology, tuning, agrees

    def context(self, scope: Scope, epoch: Epoch) -> TraceContext:
        """Return the trace context of a policy in an epoch."""
        return TraceContext.of(
            scope.policy, self._topology, scope.own(epoch.agreed), epoch.snapshot, self._tuning
        )

    def plan(self, scope: Scope, epoch: Epoch) -> Plan:
        """Return the plan of a policy that decides by itself which gradients share a bucket; made once per epoch. PolicyError: it
        cannot be traced."""
        if self._planned is None or self._planned[0] is not epoch:
            self._planned = epoch, *self._plan(scope, epoch)
        _, plan, guards = self._planned
        self._layout_guards = guards
        return plan

    def _plan(self, scope: Scope, epoch: Epoch) -> tuple[Plan, list[Guard]]:
        context = self.context(scope, epoch)
        ordered = bucket_memory.ordered(self._gradients, epoch.backward)
        found = layout(scope.policy, ordered, context)
        ranks = tuple(range(self._job.world))
        plan = Plan(
            world=self._job.world,
            workers=ranks,
            buckets=tuple(
                Bucket(
                    parts=tuple(Part(variable=each.name, stop=each.elements) for each in bucket.gradients),
                    elements=bucket.elements,
                    dtype=bucket.dtype,
                    route=scope.route,
                    order=ranks,
                    priority=bucket.priority,
                    chunk_bytes=max(1, context.number("chunk_bytes")),
                )
                for bucket in found.buckets
            ),
            schedule=Schedule(overlap="gates" if scope.policy.gates else "barrier"),
            promise=declared(scope.needs),
            label=f"policy {type(scope.policy).__name__}",
            reason="",
        )
        return plan, list(found.guards)

    def programs(self, plan: Plan, epoch: Epoch) -> dict[int, CompiledBucket]:
        """Return programs of the buckets with policies, by number. PolicyError: tracing fails, or differs between ranks."""
        ordered = {each.name: each for each in bucket_memory.ordered(self._gradients, epoch.backward)}
        self.guards, self._layout_guards = self._layout_guards, []
        made: dict[int, CompiledBucket] = {}
        portable = not self.guards
        for name, scope in self.scopes.items():
            numbers = [
                at
                for at, bucket in enumerate(plan.buckets)
                if isinstance(bucket.route, Traced) and key(bucket.route) == name
            ]
            buckets = [
                bucketing.Bucket(
                    tuple(_of_part(ordered[part.variable], part) for part in plan.buckets[at].parts),
                    plan.buckets[at].priority,
                )
                for at in numbers
            ]
            context = self.context(scope, epoch)
            if self._agrees(epoch):
                compiled, guards = shared.of_policy(
                    scope.policy, buckets, context, self._job, portable=portable
                )
            else:
                compiled, guards = shared.alone(scope.policy, buckets, context, self._job)
            made.update(zip(numbers, compiled, strict=True))
            self.guards += guards
        return made


def _of_part(gradient: bucketing.Gradient, part: Part) -> bucketing.Gradient:
    stop = gradient.elements if part.stop is None else part.stop
    if stop - part.start == gradient.elements:
        return gradient
    return msgspec.structs.replace(gradient, shape=(stop - part.start,))
