"""Plans that a search is given to begin with, in the form of `crates/plan`: their routes, each once, and their buckets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hocket.artefacts.plan import AllReduce, Bucket, Gathered, Owned, Plan
from hocket.planning.routes import by, members
from hocket.planning.told import Chosen, Proposal, Rows

if TYPE_CHECKING:
    from hocket.planning.question import Question

ROUTES_MAX = 64
"""Limit of different routes in plans to begin with: a search compares each with all others."""


def starts(question: Question, plans: Sequence[Plan]) -> tuple[list[Proposal], list[list[Chosen]]]:
    """Return the routes, and the buckets, urgent ones first, of those plans that a search may change: all of whose routes it may
    choose by itself.

    Policies are not: what they send for another size is not known. Nor are cards, which are chosen afterwards.
    """
    codecs = [name for name, _ in question.codecs if name != "none"]
    place = {each.name: at for at, each in enumerate(question.profile.gradients)}
    routes: dict[object, int] = {}
    listed: list[Proposal] = []
    found: list[list[Chosen]] = []
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
                Chosen(
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


def _described(bucket: Bucket, codecs: Sequence[str], plan: Plan) -> Proposal:
    route = bucket.route
    return Proposal(
        Rows(route.algorithm) if isinstance(route, Gathered) else by(bucket, plan.workers),
        members(bucket, plan.workers),
        "given plan",
        bucket.chunk_bytes,
        None if bucket.codec == "none" else codecs.index(bucket.codec),
        bucket.codec_links,
    )
