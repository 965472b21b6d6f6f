"""Sound plans at random, whose results are plain means: buckets of any parts, each by a route and in an order of its own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

from msgspec.structs import replace

from hocket.artefacts.algorithms import LIST
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Bucket, Owned, Owner, Part, Plan, Route, Schedule, Traced
from hocket.planning.rows import rows_bucket

MEANS = ("empty", "two_level")
"""Ready-made policies that end with the mean."""

ROWS = 0.3
"""Of all gradients, where some travel as rows."""


def random_plan(
    draw: random.Random,
    gradients: Sequence[Gradient],
    world: int,
    *,
    traced: bool = True,
    halves: bool = False,
    rows: bool = False,
) -> Plan:
    """`traced`: some buckets go by policies; `halves`: some are updated by their owners; `rows`: some gradients travel as rows, of
    which more or fewer fit."""
    grouped: dict[tuple[str, int], list[Part]] = {}
    elements: dict[tuple[str, int], int] = {}
    apart = {each.name for each in gradients if rows and draw.random() < ROWS}
    for each in draw.sample(
        [each for each in gradients if each.name not in apart], len(gradients) - len(apart)
    ):
        cuts = draw.sample(range(each.elements + 1), min(each.elements, draw.choice([0, 0, 1, 3])))
        for start, stop in pairwise([0, *sorted(cuts), each.elements]):
            key = each.dtype, draw.randrange(4)
            grouped.setdefault(key, []).append(Part(variable=each.name, start=start, stop=stop))
            elements[key] = elements.get(key, 0) + stop - start
    buckets = []
    for key, parts in grouped.items():
        order = tuple(draw.sample(range(world), world))
        route = _route(draw, order, traced=traced, halves=halves)
        buckets.append(
            Bucket(
                parts=tuple(parts),
                elements=elements[key],
                dtype=key[0],
                route=route,
                order=tuple(range(world)) if isinstance(route, Traced) else order,
                priority=draw.randrange(5),
                chunk_bytes=draw.choice([64, 1000, 65_536]),
            )
        )
    for each in (each for each in gradients if each.name in apart):
        order = draw.sample(range(world), world)
        algorithm = draw.choice(["ring", "direct"])
        bucket = rows_bucket(each, order, draw.randrange(5), algorithm=algorithm)
        bound = draw.randint(1, each.rows)
        buckets.append(replace(bucket, route=replace(bucket.route, rows=bound)))
    lossy = any(isinstance(bucket.route, Traced) for bucket in buckets)
    return Plan(
        world=world,
        workers=tuple(range(world)),
        buckets=tuple(buckets),
        schedule=Schedule(overlap=draw.choice(["barrier", "gates"])),
        promise="lossy" if lossy else "exact",
        label="at random",
        reason="",
    )


def _route(draw: random.Random, order: tuple[int, ...], *, traced: bool, halves: bool) -> Route:
    world = len(order)
    match draw.choice(["all_reduce", "all_reduce", "owned", "traced" if traced else "owned"]):
        case "traced":
            return Traced(policy=draw.choice(MEANS))
        case "owned":
            owners = order[: draw.randint(1, world)]
            return Owned(
                owners=tuple(Owner(rank=rank) for rank in draw.sample(owners, len(owners))),
                update=draw.choice(["owners", "replicas"]) if halves else "replicas",
            )
    entry = draw.choice([each for each in LIST if "all_reduce" in each.does])
    cut = draw.randint(1, world)
    sizes = {
        "sizes": (cut, world - cut) if cut < world else (world,),
        "base": (draw.choice([2, 3, 4]),),
        "servers": (cut,),
        # Somebody collects, and somebody spreads.
        # A star and a chain around one root.
        "trees": (
            3,
            *(cut - 1,) * world,
            *(max(at - 1, cut - 1) if at >= cut else min(at + 1, cut - 1) for at in range(world)),
        ),
        "shares": (1, *(draw.randint(0, 3) for _ in range(2 * world - 2)), 1),
    }
    return AllReduce(algorithm=entry.name, sizes=sizes.get(entry.takes, ()))
