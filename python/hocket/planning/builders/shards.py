"""Shards of rows, as AutoDist's builders make them, and groups of variables or shards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from math import gcd
from typing import Annotated

from msgspec import Meta

from hocket import _native
from hocket.artefacts.plan import Bucket, Owned
from hocket.planning.buckets import Piece
from hocket.planning.job import Job

CHUNKS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Numbers of variables per group that are tried; 128 is AutoDist's default."""

FUSED_BYTES = (0, *(1 << 40 if size is None else size for size in _native.PLAN_BUCKET_BYTES))
"""Sizes up to which variables with the same owners share a bucket; 0: no sharing, as in AutoDist."""

Count = Annotated[int, Meta(ge=1)]
Size = Annotated[int, Meta(ge=0)]


def even_shards(count: int) -> list[int]:
    """Rows per shard; the number of shards is the smallest divisor from 2 on (all rows if prime, one for a scalar).

    >>> even_shards(9), even_shards(5), even_shards(0)
    ([3, 3, 3], [1, 1, 1, 1, 1], [1])
    """
    if count < 2:
        return [1]
    divisor = next((each for each in range(2, int(count**0.5) + 1) if count % each == 0), count)
    return [count // divisor] * divisor


def uneven_shards(count: int) -> list[int]:
    """Rows per shard; the number of shards is the smallest non-divisor from 2 on. The first shards have one row more.

    >>> uneven_shards(6), uneven_shards(7), uneven_shards(2), uneven_shards(0)
    ([2, 2, 1, 1], [4, 3], [1, 1], [1])
    """
    if count < 2:
        return [1]
    shards = min(count, next(each for each in range(2, count + 2) if count % each))
    return [count // shards + (at < count % shards) for at in range(shards)]


def sharded(job: Job, shards: Callable[[int], list[int]]) -> dict[str, Owned]:
    """Assign shards of rows to hosts in ascending load, cyclically if there are more shards than hosts."""
    loads = {host.ranks[0]: 0.0 for host in job.hosts}
    found: dict[str, Owned] = {}
    for variable in job.variables:
        ascending = sorted(loads, key=loads.__getitem__)
        held: Counter[int] = Counter()
        for at, count in enumerate(shards(variable.rows)):
            held[ascending[at % len(ascending)]] += count
        divisor = gcd(*held.values())
        for rank, count in held.items():
            loads[rank] += variable.bytes * count / max(1, variable.rows)
        found[variable.name] = job.owned({rank: count // divisor for rank, count in sorted(held.items())})
    return found


def fused(job: Job, owners: Mapping[str, Owned], size_bytes: int) -> Iterator[Bucket]:
    """Buckets of each set of owners, of up to `size_bytes`, in backward's order."""
    for group in job.groups(
        job.backward(job.dense), size_bytes=size_bytes, apart=lambda each: owners[each.name]
    ):
        yield job.bucket(group, owners[group[0].name])


def grouped(job: Job, counts: Mapping[str, int], group: int) -> Iterator[list[Piece]]:
    """Groups of `group` consecutive shards of one element type, in the model's order.

    `counts`: number of a variable's shards, which may be that of a large table's rows. See `partition` for the order.
    """
    opened: dict[str, list[Piece]] = {}
    held: Counter[str] = Counter()
    for variable in job.dense:
        at, count = 0, counts[variable.name]
        while at < count:
            stop = min(count, at + group - held[variable.dtype])
            piece = variable, variable.elements * at // count, variable.elements * stop // count
            opened.setdefault(variable.dtype, []).append(piece)
            held[variable.dtype] += stop - at
            at = stop
            if held[variable.dtype] == group:
                yield opened.pop(variable.dtype)
                del held[variable.dtype]
    yield from opened.values()
