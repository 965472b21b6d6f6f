"""Plans and schedules of scenarios, by name."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec

from hocket._native import schedule_faults
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.local import Local
from hocket.artefacts.plan import (
    AllReduce,
    Begun,
    Bucket,
    Due,
    Owned,
    Owner,
    Part,
    Plan,
    Route,
    Schedule,
    Traced,
    Turn,
)
from hocket.planning.buckets import plan_of
from hocket.planning.rows import rows_bucket
from hocket.policies import PartialF16, Priority
from hocket.policy.policy import Policy
from tests.sessions.scenarios import OWN, Scenario
from tests.support.random_plans import random_plan

EVERY = 2
"""Steps between two exchanges of ranks that step alone."""


LOCAL = Local(every=EVERY, rate=0.7, momentum=0.9)

POLICIES: dict[str, type[Policy]] = {"rounding": PartialF16, "gated": Priority}

CHUNK_BYTES = 64


def turns_of(lengths: Sequence[int], delay: int, at: str = "end") -> tuple[Turn, ...]:
    """Turns of one bucket, of so many iterations each, one after the other."""
    first, turns = 0, []
    for length in lengths:
        last = first + length - 1
        turns.append(Turn(first=first, last=last, due=Due(iteration=last + delay, at=at)))
        first += length
    return tuple(turns)


def schedule_of(lengths: Sequence[int], delay: int, buckets: int, rate: str, at: str = "end") -> Schedule:
    """All buckets together; `at` the end of backward, or at gates."""
    turns = turns_of(lengths, delay, at)
    overlap = "gates" if at == "gate" else "barrier"
    return Schedule(
        period=sum(lengths), overlap=overlap, turns=(turns,) * buckets, rate=rate, delay_max=delay
    )


def random_schedule(draw: random.Random, buckets: int) -> Schedule:
    """Sound, with turns of each bucket's own, sent at any point, some applied at gates."""
    overlap = draw.choice(["barrier", "gates"])
    while True:
        period = draw.randint(1, 4)
        by_bucket = []
        for _ in range(buckets):
            turns, first = [], 0
            while first < period:
                last = draw.randint(first, period - 1)
                due = last + draw.randint(0, 2)
                at = draw.choice(["end", "gate"]) if overlap == "gates" else "end"
                sent = {}
                if draw.random() < 0.5:
                    point = draw.choice(["begin", "backward_end"])
                    begun = draw.randint(last, due + (at == "gate"))
                    sent = {"sent": Begun(iteration=begun, point=point, place=len(turns))}
                turns.append(Turn(first=first, last=last, due=Due(iteration=due, at=at), **sent))
                first = last + 1
            by_bucket.append(tuple(turns))
        schedule = Schedule(
            period=period,
            overlap=overlap,
            together=False,
            turns=tuple(by_bucket),
            rate="linear",
            delay_max=2,
        )
        if not schedule_faults(schedule, buckets):
            return schedule


def _schedule(scenario: Scenario, buckets: int, draw: random.Random) -> Schedule:
    if scenario.schedule == "drawn":
        alone = scenario.plan == "buckets"
        made = random_schedule(draw, buckets if alone else 1)
        return made if alone else msgspec.structs.replace(made, together=True, turns=made.turns * buckets)
    apart = [turns_of((2,), 1), turns_of((1, 1), 0), turns_of((1, 1), 1)]
    return {
        "immediate": Schedule(),
        "gates": Schedule(overlap="gates"),
        "late": schedule_of((1,), 1, buckets, "linear"),
        "merged": schedule_of((2,), 0, buckets, "linear"),
        "both": schedule_of((2,), 1, buckets, "sqrt"),
        "apart": Schedule(
            period=2,
            together=False,
            turns=tuple(apart[at % len(apart)] for at in range(buckets)),
            rate="linear",
            delay_max=1,
        ),
    }[scenario.schedule]


def _bucket(parts: Sequence[Part], route: Route, world: int, priority: int) -> Bucket:
    order = tuple(range(world))
    return Bucket(
        parts=tuple(parts),
        elements=sum((part.stop or 0) - part.start for part in parts),
        dtype="f64",
        route=route,
        order=order if isinstance(route, Traced) else order[::-1],
        priority=priority,
        chunk_bytes=CHUNK_BYTES,
        cards=(0,) if priority == 1 else None,
    )


ALGORITHMS = ("ring", "halving_doubling", "in_place", "ring")


def _layers(gradients: Mapping[str, Gradient]) -> list[list[Part]]:
    """Weight and bias of each layer."""
    whole = [Part(variable=each.name, stop=each.elements) for each in gradients.values()]
    return [whole[at : at + 2] for at in range(0, len(whole), 2)]


def plan_of_scenario(scenario: Scenario, gradients: Mapping[str, Gradient], *, epoch: int = 0) -> Plan | None:
    """Return the plan of an epoch, each of which cuts buckets at other places; None: what a job without one does."""
    world, draw = scenario.world, random.Random(1000 * scenario.seed + epoch)  # noqa: S311
    if scenario.plan in OWN:
        return None
    if scenario.plan == "any":
        made = random_plan(draw, list(gradients.values()), world, traced=epoch == 0, halves=True, rows=True)
        overlap = "gates" if scenario.schedule == "gates" else made.schedule.overlap
        return msgspec.structs.replace(made, schedule=Schedule(overlap=overlap))
    layers = _layers(gradients)
    if epoch:
        layers = [layers[0] + layers[1], *layers[2:]]
    buckets = [_bucket(parts, _route(scenario, at, epoch), world, at) for at, parts in enumerate(layers)]
    if scenario.plan == "parts":
        whole = [part for layer in layers for part in layer]
        halves = [part.stop // 2 - epoch * (part.stop > 4) for part in whole]
        first = [Part(variable=each.variable, stop=half) for each, half in zip(whole, halves, strict=True)]
        second = [
            Part(variable=each.variable, start=half, stop=each.stop)
            for each, half in zip(whole, halves, strict=True)
        ]
        buckets = [
            _bucket(parts, AllReduce(algorithm=algorithm), world, at)
            for at, (parts, algorithm) in enumerate(zip((first, second), ALGORITHMS, strict=False))
        ]
    if scenario.plan == "rows":
        dense = [part for layer in layers for part in layer if len(gradients[part.variable].shape) == 1]
        buckets = [_bucket(dense, AllReduce(algorithm="ring"), world, 0)]
        for at, each in enumerate(gradients.values()):
            if len(each.shape) > 1:
                rows = rows_bucket(each, tuple(range(world)), at, algorithm="direct" if at % 4 else "ring")
                # Some iterations have more.
                bound = max(1, each.rows - 1 - epoch)
                buckets.append(
                    msgspec.structs.replace(rows, route=msgspec.structs.replace(rows.route, rows=bound))
                )
    promise = "lossy" if scenario.plan == "traced" else "uncorrected" if scenario.turns else "exact"
    made = plan_of(buckets, world, label=scenario.label)
    return msgspec.structs.replace(made, schedule=_schedule(scenario, len(buckets), draw), promise=promise)


def _route(scenario: Scenario, at: int, epoch: int) -> Route:
    world = scenario.world
    match scenario.plan:
        case "traced" if epoch == 0:
            return Traced(policy=("empty", "two_level")[at % 2])
        case "owners" | "replicas":
            shares = tuple(Owner(rank=rank, share=1 + rank) for rank in range(at % world, world))
            return Owned(owners=shares, update=scenario.plan)
    return AllReduce(algorithm=ALGORITHMS[at % len(ALGORITHMS)])
