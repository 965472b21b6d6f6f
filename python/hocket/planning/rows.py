"""Gradients that travel as rows: the largest worthwhile number of rows, their traffic, and their buckets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from hocket import _native
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import AllReduce, Bucket, Gathered, Part, Plan, Rule
from hocket.artefacts.profile import Gradient as Profiled
from hocket.artefacts.profile import Profile
from hocket.planning import told
from hocket.planning.buckets import sizes_of
from hocket.planning.routes import by

NUMBER_BYTES = 8
"""Size of a row's number, which travels with the row."""

COUNT_BYTES = 8
"""Size of the announcement of a rank's rows, which is two numbers."""

Pair = tuple[int, int]
"""Source and destination: physical ranks."""


def rows_max(gradient: Gradient, world: int) -> int:
    """Largest number of rows per rank for which all ranks' rows are fewer bytes than an all-reduce of the dense gradient.

    With `n` ranks, each receives the rows of n - 1 others, or 2(n - 1)/n of the gradient.

    >>> rows_max(Gradient("w", (1000, 6), "f32", sparse=True), 4)
    375
    """
    row_bytes = gradient.bytes / gradient.rows
    most = 2 * gradient.rows / world * row_bytes / (row_bytes + NUMBER_BYTES)
    return max(1, min(gradient.rows, int(most)))


def most(bucket: Bucket, world: int, new_world: int) -> int:
    """Convert a bucket's rows from `world` to `new_world` ranks: by the same rule, or unchanged if set by hand."""
    route = bucket.route
    assert isinstance(route, Gathered)  # noqa: S101  # for the type checker: callers have looked
    shape = bucket.elements // route.row_elements, route.row_elements
    gradient = Gradient("", shape, bucket.dtype)
    return rows_max(gradient, new_world) if route.rows == rows_max(gradient, world) else route.rows


def route(gradient: Gradient, world: int, algorithm: str) -> Gathered:
    """Route of one gradient as rows."""
    return Gathered(
        rows=rows_max(gradient, world),
        row_elements=gradient.elements // gradient.rows,
        algorithm=algorithm,
    )


def rows_bucket(
    gradient: Gradient,
    order: Sequence[int],
    priority: int,
    *,
    algorithm: str = "ring",
    rule: Rule | None = None,
) -> Bucket:
    """Bucket of one gradient as rows, in an order of ranks."""
    return Bucket(
        parts=(Part(variable=gradient.name, stop=gradient.elements),),
        elements=gradient.elements,
        dtype=gradient.dtype,
        route=route(gradient, len(order), algorithm),
        order=tuple(order),
        priority=priority,
        rule=rule or Rule(),
    )


def travels(gradient: Gradient) -> bool:
    """Return whether a gradient is sparse: optimizers for sparse gradients do not accept a dense one."""
    return gradient.sparse and gradient.elements > 0


def with_rows(plan: Plan, gradients: Iterable[Gradient]) -> Plan:
    """Move sparse gradients from shared buckets into their own, as rows, after all others, in the order of ranks of their former
    bucket."""
    own = {each.name: each for each in gradients if travels(each)}
    kept: list[Bucket] = []
    orders: dict[str, tuple[int, ...]] = {}
    for bucket in plan.buckets:
        if isinstance(bucket.route, Gathered) or not own.keys() & set(bucket.variables):
            kept.append(bucket)
            continue
        parts = [(part, size) for part, (_, size) in zip(bucket.parts, sizes_of(bucket), strict=True)]
        left = [(part, size) for part, size in parts if part.variable not in own]
        orders |= {name: bucket.order for name in bucket.variables if name in own}
        if left:
            elements = sum(size for _, size in left)
            kept.append(
                msgspec.structs.replace(bucket, parts=tuple(part for part, _ in left), elements=elements)
            )
    first = 1 + max((bucket.priority for bucket in kept), default=-1)
    rows = [rows_bucket(own[name], order, first + at) for at, (name, order) in enumerate(orders.items())]
    return msgspec.structs.replace(plan, buckets=(*kept, *rows))


def classes(gradients: Sequence[Profiled], world: int) -> tuple[list[told.Class], list[int]]:
    """The classes, and the index of each gradient's. Gradients that may travel as rows share a bucket with no other.

    >>> words = Profiled(name="w", shape=(100, 4), dtype="f32", ready_s=0, needed_s=0, touched=3)
    >>> classes([words, Profiled(name="b", shape=(4,), dtype="f32", ready_s=0, needed_s=0)], 2)
    ([(4, (0.03, 16.0, True)), (4, None)], [0, 1])
    """
    found: list[told.Class] = []
    own: list[int] = []
    plain: dict[int, int] = {}
    for each in gradients:
        if not may(each, world):
            if each.item_bytes not in plain:
                plain[each.item_bytes] = len(found)
                found.append((each.item_bytes, None))
            own.append(plain[each.item_bytes])
            continue
        touched = rows_max(each, world) if each.touched is None else each.touched
        own.append(len(found))
        density = min(1.0, max(1, touched) / each.rows)
        found.append((each.item_bytes, (density, each.bytes / each.rows, not each.sparse)))
    return found, own


def may(gradient: Profiled, world: int) -> bool:
    """Return whether rows are worth considering: for a sparse gradient, or if a step leaves out enough rows."""
    if not gradient.elements:
        return False
    few = gradient.touched is not None and gradient.touched <= rows_max(gradient, world)
    return gradient.sparse or few


def as_touched(plan: Plan, profile: Profile) -> Plan:
    """Limit a plan's rows to those that a step touches, if measured: for simulations, whose messages have their greatest
    lengths."""
    touched = {each.name: each.touched for each in profile.gradients}

    def bounded(bucket: Bucket) -> Bucket:
        seen = touched.get(bucket.parts[0].variable) if bucket.parts else None
        if not isinstance(bucket.route, Gathered) or seen is None:
            return bucket
        rows = max(1, min(seen, bucket.route.rows))
        return msgspec.structs.replace(bucket, route=msgspec.structs.replace(bucket.route, rows=rows))

    return msgspec.structs.replace(plan, buckets=tuple(map(bounded, plan.buckets)))


def exchange(
    bucket: Bucket, workers: Collection[int] | None, known: Mapping[str, Profiled]
) -> AllReduce | told.Shares | told.Rows:
    """Convert a bucket's route for the cost model. `known`: gradients by name. If a gradient's rows per step were not counted, they
    are as many as the plan allows; an unknown gradient is dense. UsageError like `routes.by`."""
    route = bucket.route
    if not isinstance(route, Gathered):
        return by(bucket, workers)
    rows = bucket.elements // route.row_elements
    gradient = known.get(bucket.parts[0].variable) if bucket.parts else None
    seen = None if gradient is None else gradient.touched
    density = min(1.0, max(1, route.rows if seen is None else seen) / rows)
    row_bytes = float(route.row_elements * ITEM_BYTES[bucket.dtype])
    return told.Rows(route.algorithm, density, row_bytes, gradient is None or not gradient.sparse)


def sent(bucket: Bucket, counts: Sequence[int]) -> dict[Pair, int]:
    """Bytes from rank to rank if rank `r` has `counts[r]` rows, as the bucket's program sends them.

    >>> route = Gathered(rows=4, row_elements=2)
    >>> sent(Bucket(parts=(), elements=20, dtype="f32", route=route, order=(0, 2, 1), priority=0), [1, 0, 4])
    {(0, 2): 48, (1, 0): 96, (2, 1): 112}
    """
    route = bucket.route
    assert isinstance(route, Gathered)  # noqa: S101  # for the type checker: callers have looked
    row_bytes = route.row_elements * ITEM_BYTES[bucket.dtype]
    # One row of one element each, so that the elements sent identify the block's owner.
    blocks = _native.Program.gathered(
        name="",
        world=len(bucket.order),
        algorithm=route.algorithm,
        rows_max=1,
        elements=1,
        dtype=bucket.dtype,
        table=0,
    )
    found: dict[Pair, int] = {}
    for member, rank in enumerate(bucket.order):
        for op in blocks.ops(member):
            if op["op"] != "send":
                continue
            buffer, start, stop = op["src"]
            pair = rank, bucket.order[op["peer"]]
            each = {0: row_bytes, 1: NUMBER_BYTES}.get(buffer)
            moved = (stop - start) * COUNT_BYTES if each is None else each * counts[bucket.order[start]]
            found[pair] = found.get(pair, 0) + moved
    return dict(sorted(found.items()))
