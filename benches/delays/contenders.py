"""Contenders of `python -m benches delays`, each as plans, tuned in the same way: with the same routes, by simulation.

In a ring, an urgent bucket waits at each of its six hops behind bytes that kernels have accepted before. So all contenders may also
send parts directly to their owners and back, which are two hops and no more bytes.

ByteScheduler (Peng et al., SOSP 2019) cuts gradients into parts of one size, sends gradients in the order of forward's need, and
bounds bytes in flight by a credit. Here: uniform parts, an order by need at gates, and chunks, between which urgent work overtakes;
size and chunk are found by trying all. US-Byte (INFOCOM 2023) merges and cuts gradients into parts of unequal size, sent in any
order. Only its abstract is public, so this is a beam search over parts and orders with its objective, the iteration.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from benches.delays import parts
from benches.delays.contest import Contender, Ddp, Planned
from benches.delays.parts import Blocks, Slice
from hocket.artefacts.chunks import CHUNK_BYTES, CHUNK_BYTES_MIN
from hocket.artefacts.cluster import Cluster
from hocket.artefacts.network import Network
from hocket.artefacts.plan import Bucket, Evidence, Owned, Owner, Part, Plan, Schedule
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import EXACT, ROUNDED, Promise
from hocket.planning import alone, delays, schedules, search
from hocket.planning.buckets import with_codec
from hocket.planning.routes import name
from hocket.planning.search import Considered
from hocket.tools.simulation import flow
from hocket.tools.simulation.networks import from_cluster

NEAR = 1.03
"""Ratio to the fastest simulated iteration within which plans are near. For each route, the fastest plan, and the near one with the
fewest buckets, are tried for real."""

DDP_MB = (1.0, 4.0, 25.0)
"""Sizes of DDP's buckets; 25 MB is the default."""

PARTS_BYTES = tuple(1 << power for power in range(16, 23))
CHUNKS_BYTES = (CHUNK_BYTES_MIN, CHUNK_BYTES_MIN * 2, CHUNK_BYTES)
"""Sizes of a part, and credits, of ByteScheduler."""

BEAM, ROUNDS, BLOCKS_MAX, BEST = 4, 12, 32, 12
"""Limits of US-Byte's search: plans that are continued, changes, parts at the start, and resulting plans."""

ITERATIONS = 12
"""Simulated iterations, of which the second half counts."""

GATES = Schedule(overlap="gates")

PROMISES = {
    "merged 2": Promise("merged", merge=2),
    "late by 1": Promise("delayed", delay=1),
    "merged 2, late by 1": Promise("delayed", merge=2, delay=1),
}
"""Promises of Hocket's plans with merged and late gradients. All contenders may send f16, which these promises allow, too."""


class Field(NamedTuple):
    """Common planning problem of all contenders. `routes`: one bucket with each route, the one that sends least first."""

    cluster: Cluster
    profile: Profile
    considered: Considered
    routes: tuple[Bucket, ...]

    @property
    def graph(self) -> Network:
        return self.considered.question.graph

    @property
    def world(self) -> int:
        return len(self.graph.hosts)


def field(cluster: Cluster, profile: Profile, world: int, promise: Promise = ROUNDED) -> Field:
    """Make a planning problem; the first route is from the fastest plan with one route for all buckets."""
    considered = search.considered(cluster, profile, world, promise=promise)
    fastest = min(considered.uniform, key=lambda plan: plan.predicted_step_s).buckets[0]
    owned = Owned(owners=tuple(Owner(rank=rank) for rank in range(world)))
    direct = msgspec.structs.replace(fastest, route=owned, codec_links=())
    graph = considered.question.graph
    coded = with_codec(direct, fastest.codec, graph.slow_pairs() or graph.remote_pairs())
    return Field(cluster, profile, considered, (fastest, coded))


def contenders(of: Field, promises: dict[str, Promise]) -> list[Contender]:
    """All contenders, tuned; the synchronous ones first. A promise that shortens no iteration has no contender."""
    hocket = synchronous(of)
    found = [
        Contender(name="DDP on Gloo", variants=tuple(Ddp(bucket_mb=each) for each in DDP_MB)),
        Contender(name="DDP, f16 hook", variants=tuple(Ddp(bucket_mb=each, f16=True) for each in DDP_MB)),
        _planned("ByteScheduler-like", of, byte_scheduler(of)),
        _planned("US-Byte-like", of, us_byte(of)),
        _planned("Hocket, synchronous", of, hocket),
    ]
    hidden_s = min(simulated_s(plan, of) for plan in hocket)
    for title, promise in promises.items():
        plans = [each for each in delayed(of, promise) if simulated_s(each, of) < alone.FASTER * hidden_s]
        if plans:
            found.append(_planned(f"Hocket, {title}", of, plans, synchronous=False))
    return found


def ddp(of: Field, bucket_bytes: int, *, f16: bool = False) -> Plan:
    """DDP as a plan, for simulations: a ring of gradients in the order of backward, in buckets, behind a barrier."""
    backward = sorted(of.profile.gradients, key=lambda each: each.ready_s)
    groups = parts.filled([[(each, 0, each.elements)] for each in backward], bucket_bytes)
    route = of.routes[0] if f16 else msgspec.structs.replace(of.routes[0], codec="none", codec_links=())
    return _plan("DDP", of.world, route, groups, schedule=Schedule())


def byte_scheduler(of: Field) -> list[Plan]:
    """Plans for each route, size of parts and credit."""
    found = []
    for route, size_bytes, chunk_bytes in itertools.product(of.routes, PARTS_BYTES, CHUNKS_BYTES):
        groups = parts.uniform(of.profile.gradients, size_bytes)
        chunked = msgspec.structs.replace(route, chunk_bytes=chunk_bytes)
        label = f"{name(route.route)}, parts of {size_bytes >> 10} KiB, chunks of {chunk_bytes >> 10} KiB"
        found.append(_plan(label, of.world, chunked, groups))
    return found


def us_byte(of: Field) -> list[Plan]:
    """The best plans of a beam search from uniform parts, by the predicted iteration; with each route."""
    return [plan for route in of.routes for plan in _searched(of, route)]


def _searched(of: Field, route: Bucket) -> list[Plan]:
    uniform = (parts.uniform(of.profile.gradients, size) for size in PARTS_BYTES)
    first = {
        Blocks(tuple(map(tuple, groups)), tuple(range(len(groups))))
        for groups in uniform
        if len(groups) <= BLOCKS_MAX
    }
    known = {blocks: _predicted_s(_unequal(of, route, blocks), of) for blocks in first}
    for _ in range(ROUNDS):
        best = sorted(known, key=known.__getitem__)[:BEAM]
        fresh = {after for blocks in best for after in parts.changed(blocks)} - known.keys()
        before_s = known[best[0]]
        known |= {blocks: _predicted_s(_unequal(of, route, blocks), of) for blocks in fresh}
        if min(known.values()) >= before_s:
            break
    return [_unequal(of, route, blocks) for blocks in sorted(known, key=known.__getitem__)[:BEST]]


def synchronous(of: Field) -> list[Plan]:
    """The planner's plan, behind a barrier and at gates; and plans at gates with parts in the order of need."""
    plain = of.considered.explained(of.considered.best)
    uniform = [parts.uniform(of.profile.gradients, size) for size in PARTS_BYTES]
    return [
        msgspec.structs.replace(plain, schedule=Schedule(), label=f"{plain.label}, barrier"),
        msgspec.structs.replace(plain, schedule=GATES, label=f"{plain.label}, gates"),
        *(
            _plan(f"{name(route.route)}, gates, by need", of.world, route, groups)
            for route, groups in itertools.product(of.routes, uniform)
        ),
    ]


def delayed(of: Field, promise: Promise) -> Iterator[Plan]:
    """The planner's plan, and plans of parts by need, scheduled under a promise, if that changes them."""
    for plan in synchronous(of):
        made = delays.scheduled(predicted(plan, of), of.graph, of.profile, promise, "linear")
        if made.schedule.turns:
            yield made


def predicted(plan: Plan, of: Field) -> Plan:
    """Return the plan with the predicted time of a whole iteration."""
    evidence = Evidence(predicted_step_s=_predicted_s(plan, of))
    return msgspec.structs.replace(plan, evidence=evidence)


def simulated_s(plan: Plan, of: Field) -> float:
    """Mean seconds of an iteration, message by message."""
    network = from_cluster(of.cluster, plan.world)
    count = max(ITERATIONS, 4 * plan.schedule.period)
    run = flow.predict(plan, network, of.profile, steps=count)
    ends_s = [max(ends) for ends in run.simulation.phase_ends_s]
    half = len(ends_s) // 2 // plan.schedule.period * plan.schedule.period
    return (ends_s[-1] - ends_s[half - 1]) / (len(ends_s) - half)


def _planned(title: str, of: Field, plans: Iterable[Plan], *, synchronous: bool = True) -> Contender:
    """Make a contender of the fastest plans, message by message: the simulation does not cover all of a bucket's processor time."""
    found = list(plans)
    tried: dict[int, None] = {}
    for route in dict.fromkeys(name(plan.buckets[0].route) for plan in found):
        times_s = [
            (simulated_s(plan, of), at)
            for at, plan in enumerate(found)
            if name(plan.buckets[0].route) == route
        ]
        fastest_s, fastest = min(times_s)
        near = [(len(found[at].buckets), time_s, at) for time_s, at in times_s if time_s <= NEAR * fastest_s]
        tried |= dict.fromkeys((fastest, min(near)[-1]))
    return Contender(
        name=title,
        variants=tuple(
            Planned(plan=found[at] if found[at].schedule.turns else predicted(found[at], of)) for at in tried
        ),
        synchronous=synchronous,
    )


def _unequal(of: Field, route: Bucket, blocks: Blocks) -> Plan:
    label = f"{name(route.route)}, {len(blocks.groups)} unequal parts"
    return _plan(label, of.world, route, blocks.groups, places=blocks.places)


def _plan(
    label: str,
    world: int,
    route: Bucket,
    groups: Sequence[Sequence[Slice]],
    *,
    places: Iterable[int] | None = None,
    schedule: Schedule = GATES,
) -> Plan:
    """Make a plan with a bucket for each group, at its place in the order of sending; None: in the listed order."""
    buckets = [
        msgspec.structs.replace(
            route,
            parts=tuple(Part(variable=each.name, start=start, stop=stop) for each, start, stop in group),
            elements=sum(stop - start for _, start, stop in group),
            dtype=group[0][0].dtype,
            priority=place,
        )
        for group, place in zip(groups, places or range(len(groups)), strict=True)
    ]
    return Plan(
        world=world,
        workers=tuple(range(world)),
        buckets=tuple(sorted(buckets, key=lambda each: each.priority)),
        schedule=schedule,
        promise="exact" if route.codec == "none" else "rounded",
        label=label,
        reason="",
    )


def _predicted_s(plan: Plan, of: Field) -> float:
    """Seconds of an iteration, by the planner's model of links that never idle beside work."""
    if plan.schedule.overlap == "barrier":
        return of.considered.question.predicted(plan).step_s
    plain = msgspec.structs.replace(plan, schedule=Schedule())
    choices = schedules.front(plain, of.graph, of.profile, EXACT, gates=True, rate="one")
    return choices[0].iteration_s
