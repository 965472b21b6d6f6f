"""Plans that a search is given to begin with, in the form of `crates/plan`: their routes, each once, and their buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hocket import _native
from hocket.artefacts.plan import AllReduce, Bucket, Gathered, Owned, Plan
from hocket.planning.routes import by, members

if TYPE_CHECKING:
    from hocket.planning.question import Question

ROUTES_MAX = 64
"""Limit of different routes in plans to begin with: a search compares each with all others."""

Route = tuple[
    tuple[str, tuple[int, ...]] | _native.Owned | tuple[str, float, float, bool],
    tuple[int, ...],
    int,
    int | None,
    tuple[tuple[int, int], ...],
]
"""Roles of members, their order, bytes of a chunk, the index of a codec, its links."""

Start = list[tuple[list[tuple[int, int, int]], int]]
"""By bucket, urgent ones first: parts (variable, first element, one after the last), and the number of its route."""


def starts(question: Question, plans: Sequence[Plan]) -> tuple[list[Route], list[Start]]:
    """Return the routes and the buckets of those plans that a search may change: all of whose routes it may choose by itself.

    Policies are not: what they send for another size is not known. Nor are cards, which are chosen afterwards.
    """
    codecs = [name for name, _ in question.codecs if name != "none"]
    place = {each.name: at for at, each in enumerate(question.profile.gradients)}
    routes: dict[object, int] = {}
    listed: list[Route] = []
    found: list[Start] = []
    for plan in plans:
        kinds = {_key(bucket): bucket for bucket in plan.buckets}
        new = [key for key in kinds if key not in routes]
        fits = len(routes) + len(new) <= ROUTES_MAX
        if not (fits and question.admits(plan) and all(_may_start(each, codecs) for each in plan.buckets)):
            continue
        for key in new:
            routes[key] = len(routes)
            listed.append(_described(kinds[key], codecs, plan))
        found.append(
            [
                (
                    [(place[part.variable], part.start, part.stop or 0) for part in bucket.parts],
                    routes[_key(bucket)],
                )
                for bucket in sorted(plan.buckets, key=lambda each: each.priority)
            ]
        )
    return listed, found


def _may_start(bucket: Bucket, codecs: Sequence[str]) -> bool:
    route = bucket.route
    known = isinstance(route, AllReduce | Gathered) or (
        isinstance(route, Owned) and route.update == "replicas"
    )
    whole = all(part.stop is not None for part in bucket.parts)
    return known and whole and bucket.cards is None and bucket.codec in ("none", *codecs)


def _key(bucket: Bucket) -> object:
    route: object = bucket.route
    if isinstance(route, Gathered):
        # Of how many rows, gradients say.
        route = route.algorithm
    return route, bucket.order, bucket.chunk_bytes, bucket.codec, bucket.codec_links


def _described(bucket: Bucket, codecs: Sequence[str], plan: Plan) -> Route:
    route = bucket.route
    how: tuple[str, tuple[int, ...]] | _native.Owned | tuple[str, float, float, bool]
    if isinstance(route, Gathered):
        how = route.algorithm, 1.0, 1.0, False
    else:
        known = by(bucket, plan.workers)
        how = (known.algorithm, known.sizes) if isinstance(known, AllReduce) else known
    codec = None if bucket.codec == "none" else codecs.index(bucket.codec)
    return how, members(bucket, plan.workers), bucket.chunk_bytes, codec, bucket.codec_links
