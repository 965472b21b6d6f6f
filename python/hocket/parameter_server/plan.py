"""The plan of a job with all parameters on servers, and the views of any plan that its workers and servers have."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.needs import bucket_needs, declared
from hocket.artefacts.plan import Bucket, Part, Plan, Schedule, Served
from hocket.parameter_server.choice import ParameterServer
from hocket.parameter_server.keys import place
from hocket.policy.bucketing import bucketed

ROUNDS = 4
"""Smallest number of keys per server, if parameters are small enough: servers then hold about the same, and pulls overlap."""


def served_plan(gradients: Sequence[Gradient], world: int, choice: ParameterServer) -> Plan:
    """Put every parameter on the servers, which are the last ranks of the `world`. Parameters of the first layers go first.

    `gradients`: in the order of registration. Neighbours travel together up to `choice.bucket_bytes`. UsageError if no rank is left
    to train.

    >>> small = [Gradient(name, (10,), "f32") for name in "abcd"]
    >>> [bucket.variables for bucket in served_plan(small, 3, ParameterServer()).buckets]
    [('a',), ('b',), ('c',), ('d',)]
    """
    workers = choice.workers(world)
    size_bytes = sum(each.bytes for each in gradients) // (ROUNDS * choice.servers)
    fused = bucketed(reversed(gradients), min(choice.bucket_bytes, size_bytes))[::-1]
    elements = [sum(each.elements for each in own) for own in fused]
    sizes = [(count, ITEM_BYTES[own[0].dtype]) for own, count in zip(fused, elements, strict=True)]
    buckets = tuple(
        Bucket(
            parts=tuple(Part(variable=each.name, stop=each.elements) for each in own),
            elements=count,
            dtype=own[0].dtype,
            route=Served(
                servers=tuple(workers + piece.server for piece in pieces), staleness=choice.staleness
            ),
            order=tuple(range(workers)),
            priority=at,
        )
        for at, (own, count, pieces) in enumerate(
            zip(fused, elements, place(sizes, choice.servers), strict=True)
        )
    )
    return Plan(
        world=world,
        workers=tuple(range(workers)),
        buckets=buckets,
        schedule=Schedule(overlap="gates"),
        promise=declared(bucket_needs(buckets)),
        label=choice.title,
        reason="Every parameter is on a server.",
    )


def serves(plan: Plan) -> bool:
    """Return whether some ranks of a plan are servers."""
    return any(isinstance(bucket.route, Served) for bucket in plan.buckets)


def in_step(plan: Plan) -> bool:
    """Return whether workers wait for one another in each iteration, because some bucket is not served."""
    return not all(isinstance(bucket.route, Served) for bucket in plan.buckets)


def among_workers(plan: Plan) -> Plan:
    """The plan for workers that know of no servers. Its served buckets are not sound."""
    return msgspec.structs.replace(plan, world=len(plan.workers))
