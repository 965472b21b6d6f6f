"""Random plausible plans: AutoDist's guided sampler (Zhang et al. 2020, section 2.4, and the authors' code).

Small variables stay whole, the largest are always cut, others by chance. Owned parts are placed by loads. All-reduces are grouped
into consecutive groups of similar load. A template gives the other properties of a bucket (order, numbers, codec, chunks).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from math import exp, inf

import msgspec

from hocket.artefacts.plan import AllReduce, Bucket, Owned, Owner, Plan, Rule
from hocket.artefacts.profile import Gradient
from hocket.planning.buckets import Piece, backward_order, bucket_of, plan_of
from hocket.planning.question import Question
from hocket.planning.rows import travels, with_rows
from hocket.policy.bucketing import Closing, partition

WHOLE_BYTES = 256 << 10
"""Size up to which a variable stays whole."""
CUT_SHARE = 0.2
"""Fraction of the model above which a variable is always cut."""
CUT_ELEMENTS = 64
"""Variables are cut at multiples of this many elements, so that memory stays aligned."""
GROUPS_MAX = 20
TEMPLATES_MAX = 3
"""Limit on the templates of one plan."""
EVENNESS = 0.5
"""Distance of owners from even loads: the fraction of an owner's share that makes a place e times as likely."""


def sampled(question: Question, templates: Sequence[Bucket], seed: int) -> Iterator[Plan]:
    """Yield random plans without end, the same for the same arguments. `templates`: all-reduce buckets, whose routes are used."""
    draw = random.Random(seed)  # noqa: S311  # of plans
    while True:
        yield _plan(question, templates, draw)


def _plan(question: Question, templates: Sequence[Bucket], draw: random.Random) -> Plan:
    gradients = backward_order(question.profile.gradients)
    own = [draw.choice(templates) for _ in range(draw.randint(1, min(TEMPLATES_MAX, len(templates))))]
    owned_share = draw.choice((0.0, 0.1, 0.3, 1.0)) * draw.random()
    reduced: list[Piece] = []
    served: list[Piece] = []
    for gradient in gradients:
        for piece in _pieces(gradient, question, draw):
            owned = draw.random() < owned_share and not travels(gradient)
            (served if owned else reduced).append(piece)
    groups = [(group, draw.choice(own)) for group in _groups(reduced, draw)]
    groups += _placed(served, question, templates[0], draw)
    ready_s = {each.name: each.ready_s for each in gradients}
    groups.sort(key=lambda group: max(ready_s[gradient.name] for gradient, _, _ in group[0]))
    made = [bucket_of(group, template, priority) for priority, (group, template) in enumerate(groups)]
    plan = plan_of(made, len(question.graph.hosts), label="sampled")
    return with_rows(plan, question.profile.gradients)


def _pieces(gradient: Gradient, question: Question, draw: random.Random) -> list[Piece]:
    total = sum(each.bytes for each in question.profile.gradients)
    most = max(2 * WHOLE_BYTES, CUT_SHARE * total)
    chance = (gradient.bytes - WHOLE_BYTES) / (most - WHOLE_BYTES)
    shards = min(gradient.shape[0] if gradient.shape else 1, len(question.graph.hosts))
    if travels(gradient) or shards < 2 or draw.random() >= chance:
        return [(gradient, 0, gradient.elements)]
    count = draw.randint(2, shards)
    cuts = [gradient.elements * at // count // CUT_ELEMENTS * CUT_ELEMENTS for at in range(count)]
    ends = [*cuts[1:], gradient.elements]
    return [(gradient, start, stop) for start, stop in zip(cuts, ends, strict=True) if start < stop]


def _groups(pieces: Sequence[Piece], draw: random.Random) -> list[list[Piece]]:
    """Consecutive whole variables of one type; a part is a group of its own."""
    count = draw.randint(1, GROUPS_MAX)
    size = sum(_bytes(piece) for piece in pieces) / count

    def alone(piece: Piece) -> bool:
        gradient, start, stop = piece
        return stop - start < gradient.elements or travels(gradient)

    return partition(
        pieces,
        Closing(size),
        kind=lambda piece: piece if alone(piece) else piece[0].dtype,
        size=lambda piece: inf if alone(piece) else _bytes(piece),
    )


def _placed(
    pieces: Sequence[Piece], question: Question, template: Bucket, draw: random.Random
) -> list[tuple[list[Piece], Bucket]]:
    """Place the largest pieces first, on ranks drawn by distance from a target load proportional to bandwidth."""
    graph = question.graph
    world = len(graph.hosts)
    speeds = [
        max((graph.bit_per_s(rank, to) for to in range(world) if to != rank), default=1.0)
        for rank in range(world)
    ]
    total = sum(map(_bytes, pieces))
    targets = [total * speed / sum(speeds) for speed in speeds]
    loads, found = [0.0] * world, []
    for piece in sorted(pieces, key=_bytes, reverse=True):
        weights = [
            exp(min(50.0, max(-50.0, (target - load) / (EVENNESS * target))))
            for target, load in zip(targets, loads, strict=True)
        ]
        rank = draw.choices(range(world), weights)[0]
        loads[rank] += _bytes(piece)
        route = Owned(owners=(Owner(rank=rank),))
        owned = msgspec.structs.replace(
            template,
            route=route,
            order=tuple(range(world)),
            codec="none",
            codec_links=(),
            rule=Rule(order="given", owners="one"),
        )
        found.append(([piece], owned))
    return found


def _bytes(piece: Piece) -> int:
    gradient, start, stop = piece
    return (stop - start) * gradient.item_bytes


def all_reduces(plans: Sequence[Plan]) -> list[Bucket]:
    """The first bucket of each plan, once for each route, if it is an all-reduce."""
    found: dict[tuple[object, ...], Bucket] = {}
    for plan in plans:
        first = plan.buckets[0]
        if isinstance(first.route, AllReduce):
            found.setdefault((first.route, first.order, first.codec, first.codec_links), first)
    return list(found.values())
