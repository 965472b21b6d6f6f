"""Hand-written strategies as plans: strategies of AutoDist's code, under their names there (Zhang et al. 2020; Parallax: Kim et al.
2019), each with the setting that is predicted to be the fastest.

A variable in shards on several hosts is one bucket whose owners have as many shares: the same bytes between the same ranks. Open
choices are made as Hocket makes them without a search: ranks as listed, rings between hosts, sparse gradients as rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import gcd

import msgspec

from hocket import _native
from hocket.artefacts.chunks import SHARED_CHUNK_BYTES, chunk_bytes
from hocket.artefacts.plan import AllReduce, Bucket, Evidence, Owned, Owner, Plan, Route, Rule
from hocket.artefacts.profile import Gradient
from hocket.planning import rows
from hocket.planning.buckets import Piece, backward_order, bucket_of, plan_of
from hocket.planning.cost import Steps, as_modelled
from hocket.planning.question import SEED, Question
from hocket.policy.bucketing import Closing, partition

GROUPS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Numbers of variables per group that are tried; 128 is AutoDist's default."""
FUSED_BYTES = (0, *_native.PLAN_BUCKET_BYTES)
"""Sizes up to which variables with the same owners share a bucket; 0: no sharing, as in AutoDist."""
BUCKETS_MAX = 1024
"""Limit on buckets in a plan; larger plans are not made."""
OWNED_RANKS_MAX = 256
"""Limit on ranks for plans with owners, the same as in the search."""

Placed = tuple[list[Piece], Route]
"""Pieces and route of a bucket."""


@dataclass(frozen=True)
class Builder:
    """A rule and the settings to try."""

    make: Callable[[Question, int | None], Iterator[Placed]]
    settings: Sequence[int | None]


def built(question: Question) -> list[tuple[str, Plan]]:
    """The fastest plan of each builder that makes one for this job, with its prediction; empty for one rank.

    >>> from hocket.artefacts.cluster import Cluster, Host
    >>> from hocket.artefacts.promise import EXACT
    >>> from hocket.planning.question import question_of
    >>> from hocket.planning.search import neutral_profile
    >>> two = Cluster(hosts=tuple(Host(name=name, bandwidth_bit_per_s=1e9) for name in "ab"))
    >>> [name for name, _ in built(question_of(two, neutral_profile(), 2, EXACT, None))] == list(BUILDERS)
    True
    """
    if len(question.graph.hosts) < 2:
        return []
    made = [
        (name, plan)
        for name, builder in BUILDERS.items()
        for plan in {
            plan.buckets: plan
            for plan in (of(question, name, setting) for setting in builder.settings)
            if plan is not None
        }.values()
    ]
    factor = as_modelled if question.correction is None else question.correction.factor
    steps_s = Steps([plan for _, plan in made], question.profile, factor).on(question.graph)
    found: dict[str, Plan] = {}
    for (name, plan), step_s in zip(made, steps_s, strict=True):
        if name not in found or step_s < found[name].predicted_step_s:
            evidence = Evidence(predicted_step_s=step_s)
            found[name] = msgspec.structs.replace(plan, evidence=evidence)
    return list(found.items())


def of(question: Question, name: str, setting: int | None) -> Plan | None:
    """The plan of the named builder with one setting; None if it has too many buckets, or owners among too many ranks."""
    world = len(question.graph.hosts)
    order = {gradient.name: at for at, gradient in enumerate(question.profile.gradients)}
    ready_s = {gradient.name: gradient.ready_s for gradient in question.profile.gradients}

    def readiness(placed: Placed) -> tuple[float, int]:
        names = [gradient.name for gradient, _, _ in placed[0]]
        return max(ready_s[each] for each in names), -max(order[each] for each in names)

    placed = sorted(islice(BUILDERS[name].make(question, setting), BUCKETS_MAX + 1), key=readiness)
    owned = any(isinstance(route, Owned) for _, route in placed)
    if len(placed) > BUCKETS_MAX or (owned and world > OWNED_RANKS_MAX):
        return None
    buckets = [
        bucket_of(pieces, _template(question, route), priority)
        for priority, (pieces, route) in enumerate(placed)
    ]
    return rows.with_rows(plan_of(buckets, world, label=name), question.profile.gradients)


def _template(question: Question, route: Route) -> Bucket:
    shared = route == AllReduce(algorithm="in_place")
    return Bucket(
        parts=(),
        elements=0,
        dtype="f32",
        route=route,
        order=tuple(range(len(question.graph.hosts))),
        priority=0,
        chunk_bytes=SHARED_CHUNK_BYTES if shared else chunk_bytes(question.graph.slowest_bit_per_s),
        rule=Rule(
            order="given", owners="one" if isinstance(route, Owned) and len(route.owners) == 1 else None
        ),
    )


def _whole(gradient: Gradient) -> Piece:
    return gradient, 0, gradient.elements


# Parameter servers


def _hosts(question: Question) -> list[int]:
    """The first rank of each host."""
    first: dict[int, int] = {}
    for rank, host in enumerate(question.graph.hosts):
        first.setdefault(host, rank)
    return list(first.values())


def _ps(question: Question, fused_bytes: int | None) -> Iterator[Placed]:
    """Place every variable on the first host."""
    owner = Owned(owners=(Owner(rank=0),))
    return _fused(
        question, dict.fromkeys((each.name for each in question.profile.gradients), owner), fused_bytes
    )


def _ps_load_balancing(question: Question, fused_bytes: int | None) -> Iterator[Placed]:
    """Place each variable, in the model's order, on the host with the fewest bytes."""
    loads = dict.fromkeys(_hosts(question), 0)
    owners: dict[str, Route] = {}
    for gradient in question.profile.gradients:
        least = min(loads, key=loads.__getitem__)
        loads[least] += gradient.bytes
        owners[gradient.name] = Owned(owners=(Owner(rank=least),))
    return _fused(question, owners, fused_bytes)


def _partitioned_ps(question: Question, fused_bytes: int | None) -> Iterator[Placed]:
    return _fused(question, _sharded(question, _even_shards), fused_bytes)


def _uneven_partitioned_ps(question: Question, fused_bytes: int | None) -> Iterator[Placed]:
    return _fused(question, _sharded(question, _uneven_shards), fused_bytes)


def _sharded(question: Question, shards: Callable[[int], list[int]]) -> dict[str, Route]:
    """Assign shards of rows to hosts in ascending load, cyclically if there are more shards than hosts."""
    loads = dict.fromkeys(_hosts(question), 0.0)
    found: dict[str, Route] = {}
    for gradient in question.profile.gradients:
        ascending = sorted(loads, key=loads.__getitem__)
        held: Counter[int] = Counter()
        for at, count in enumerate(shards(gradient.rows)):
            held[ascending[at % len(ascending)]] += count
        divisor = gcd(*held.values())
        for rank, count in held.items():
            loads[rank] += gradient.bytes * count / max(1, gradient.rows)
        found[gradient.name] = Owned(
            owners=tuple(Owner(rank=rank, share=count // divisor) for rank, count in sorted(held.items()))
        )
    return found


def _even_shards(count: int) -> list[int]:
    """Rows per shard; the number of shards is the smallest divisor from 2 on (all rows if prime, one for a scalar).

    >>> _even_shards(9), _even_shards(5), _even_shards(0)
    ([3, 3, 3], [1, 1, 1, 1, 1], [1])
    """
    if count < 2:
        return [1]
    divisor = next((each for each in range(2, int(count**0.5) + 1) if count % each == 0), count)
    return [count // divisor] * divisor


def _uneven_shards(count: int) -> list[int]:
    """Rows per shard; the number of shards is the smallest non-divisor from 2 on. The first shards have one row more.

    >>> _uneven_shards(6), _uneven_shards(7), _uneven_shards(2), _uneven_shards(0)
    ([2, 2, 1, 1], [4, 3], [1, 1], [1])
    """
    if count < 2:
        return [1]
    shards = min(count, next(each for each in range(2, count + 2) if count % each))
    return [count // shards + (at < count % shards) for at in range(shards)]


def _fused(question: Question, owners: dict[str, Route], fused_bytes: int | None) -> Iterator[Placed]:
    """Variables in backward's order; variables with the same owners share a bucket of up to `fused_bytes`."""
    made = partition(
        backward_order(question.profile.gradients),
        Closing(fused_bytes),
        kind=lambda each: (owners[each.name], each.dtype),
        size=lambda each: each.bytes,
    )
    yield from (([_whole(each) for each in own], owners[own[0].name]) for own in made)


# All-reduces


def _ring(question: Question) -> AllReduce:
    alone = len(set(question.graph.hosts)) == 1
    return AllReduce(algorithm="in_place" if alone else "ring")


def _all_reduce(question: Question, group: int | None) -> Iterator[Placed]:
    """Groups of `group` variables in the model's order."""
    return _grouped(question, ((each, 1) for each in question.profile.gradients), group)


def _partitioned_all_reduce(question: Question, group: int | None) -> Iterator[Placed]:
    """Groups of `group` shards."""
    return _grouped(
        question, ((each, _shards(each, each.rows)) for each in question.profile.gradients), group
    )


def _random_axis_all_reduce(question: Question, group: int | None) -> Iterator[Placed]:
    """Groups of shards along a random axis longer than 1; sparse gradients by rows. Parts along another axis move as many bytes:
    they are as many equal parts of the row-major elements."""
    draw = random.Random(SEED)  # noqa: S311  # of axes

    def counted(gradient: Gradient) -> int:
        axes = [size for size in gradient.shape if size > 1]
        return _shards(gradient, gradient.rows if gradient.sparse or not axes else draw.choice(axes))

    return _grouped(question, ((each, counted(each)) for each in question.profile.gradients), group)


def _shards(gradient: Gradient, count: int) -> int:
    return 1 if rows.travels(gradient) else len(_even_shards(count))


def _grouped(
    question: Question, gradients: Iterable[tuple[Gradient, int]], group: int | None
) -> Iterator[Placed]:
    """Groups of `group` consecutive shards of one element type. `gradients`: each with the number of its shards, which may be that
    of a large table's rows. See `partition` for the order."""
    opened: dict[str, list[Piece]] = {}
    held: Counter[str] = Counter()
    for gradient, count in gradients:
        at = 0
        while at < count:
            stop = count if group is None else min(count, at + group - held[gradient.dtype])
            piece = gradient, gradient.elements * at // count, gradient.elements * stop // count
            opened.setdefault(gradient.dtype, []).append(piece)
            held[gradient.dtype] += stop - at
            at = stop
            if held[gradient.dtype] == group:
                yield opened.pop(gradient.dtype), _ring(question)
                del held[gradient.dtype]
    yield from ((pieces, _ring(question)) for pieces in opened.values())


def _parallax(question: Question, group: int | None) -> Iterator[Placed]:
    """Dense gradients by all-reduce in groups; gradients of which a step touches few rows travel as rows."""
    world = len(question.graph.hosts)
    sparse = [each for each in question.profile.gradients if rows.may(each, world)]
    dense = ((each, 1) for each in question.profile.gradients if not rows.may(each, world))
    yield from _grouped(question, dense, group)
    yield from (([_whole(each)], rows.route(each, world, "ring")) for each in sparse)


BUILDERS: dict[str, Builder] = {
    "ps": Builder(_ps, FUSED_BYTES),
    "ps-load-balancing": Builder(_ps_load_balancing, FUSED_BYTES),
    "partitioned-ps": Builder(_partitioned_ps, FUSED_BYTES),
    "uneven-partitioned-ps": Builder(_uneven_partitioned_ps, FUSED_BYTES),
    "all-reduce": Builder(_all_reduce, GROUPS),
    "partitioned-all-reduce": Builder(_partitioned_all_reduce, GROUPS),
    "random-axis-all-reduce": Builder(_random_axis_all_reduce, GROUPS),
    "parallax": Builder(_parallax, GROUPS),
}
