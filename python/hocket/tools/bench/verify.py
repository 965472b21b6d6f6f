"""Time to compile and verify the programs of a large job."""

from __future__ import annotations

import time

from msgspec import Struct

from hocket.artefacts.plan import AllReduce
from hocket.planning.compile import all_reduce_program
from hocket.policies.two_level import TwoLevelRing
from hocket.policy.bucketing import Bucket, Gradient
from hocket.policy.topology import Topology
from hocket.policy.trace import Programs, TraceContext

RACKS = 4
PER_HOST = 8


class VerifyCost(Struct, frozen=True, kw_only=True):
    """Seconds for all buckets, as ranks need them before the first step; `source`: a plan or a policy."""

    source: str
    world: int
    buckets: int
    elements: int
    total_s: float


def measure(*, world: int = 64, buckets: int = 200, elements: int = 1_000_000) -> VerifyCost:
    """Measure a plan, two-level over RACKS racks; every bucket is compiled and verified anew."""
    route = AllReduce(algorithm="two_level", sizes=(world // RACKS,) * RACKS)
    began_s = time.perf_counter()
    for _ in range(buckets):
        all_reduce_program(
            world=world,
            elements=elements,
            dtype="f32",
            op="sum",
            scale=1.0 / world,
            route=route,
        )
    total_s = time.perf_counter() - began_s
    return VerifyCost(source="plan", world=world, buckets=buckets, elements=elements, total_s=total_s)


def measure_policy(*, world: int, buckets: int = 200, elements: int = 250_000) -> VerifyCost:
    """Measure `two_level` over hosts of PER_HOST ranks: traced, compiled and verified; each bucket has another length."""
    policy = TwoLevelRing()
    topology = Topology.even(world=world, racks=world // PER_HOST, hosts_per_rack=1)
    began_s = time.perf_counter()
    programs = Programs(policy, TraceContext.of(policy, topology))
    for at in range(buckets):
        programs.program(Bucket((Gradient("gradient", (elements + at,), "f32", at, at),), at))
    total_s = time.perf_counter() - began_s
    return VerifyCost(source="policy", world=world, buckets=buckets, elements=elements, total_s=total_s)
