"""Allowances of a promise that plans and policies need: rounding, merged, late and lost gradients, steps of ranks alone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from hocket.artefacts.plan import Bucket, Plan, Schedule, Served, Traced
from hocket.artefacts.promise import WORDS, Amount, Promise, Word, word_of
from hocket.errors import UsageError


class Need(NamedTuple):
    """Allowance, its amount, and a few words on what needs it."""

    name: str
    amount: Amount
    what: str


def needs_of(plan: Plan) -> Iterator[Need]:
    """Yield all that a plan needs."""
    yield from bucket_needs(plan.buckets)
    yield from schedule_needs(plan.schedule, *plan.safer)


def bucket_needs(buckets: Iterable[Bucket]) -> Iterator[Need]:
    """Yield needs of codecs and routes."""
    for index, bucket in enumerate(buckets):
        where, route = f"bucket {index}", bucket.route
        if bucket.codec != "none":
            yield Need("codec", bucket.codec, f"{where} has {bucket.codec} on links")
        if isinstance(route, Traced):
            yield Need("loss", "any", f"{where} goes by policy {route.policy}")
        if isinstance(route, Served):
            for source, to in bucket.codec_links:
                if source in route.servers:
                    yield Need("loss", "any", f"{where} has {bucket.codec} from server {source} to {to}")
            if route.staleness != 0:
                late = math.inf if route.staleness is None else route.staleness
                yield Need("delay", late, f"{where} is served with staleness")


def schedule_needs(*schedules: Schedule) -> Iterator[Need]:
    """Yield what turns need, and how they are applied."""
    for name, local, least, what in (
        ("merge", False, 2, "iterations are merged"),
        ("local", True, 1, "ranks step alone between exchanges"),
    ):
        alike = [each for each in schedules if (each.steps == "local") == local]
        turns = [turn for each in alike for own in each.turns for turn in own]
        most = max((turn.last - turn.first + 1 for turn in turns), default=0)
        if most >= least:
            yield Need(name, most, what)
    for steps, name, what in (
        ("own first", "delay", "ranks go on with their own gradients until means arrive"),
        ("local", "delay", "ranks go on while an exchange is under way"),
        ("one", "uncorrected", "gradients are applied late, with nothing in their place"),
    ):
        lateness = [late_by(each) for each in schedules if each.turns and each.steps == steps]
        # Ranks differ between arrivals even where no mean is late.
        if any(lateness) or (lateness and steps == "own first"):
            yield Need(name, max(lateness), what)


def late_by(schedule: Schedule) -> int:
    """Return the largest number of iterations by which a schedule applies gradients late."""
    return max(
        [schedule.delay_max] + [turn.due.iteration - turn.last for each in schedule.turns for turn in each]
    )


def declared(needed: Iterable[Need]) -> Word:
    """Return the promise of a plan with these needs."""
    return word_of({need.name for need in needed})


def unkept(promise: Promise | Word, needed: Iterable[Need]) -> Iterator[str]:
    """Yield a sentence for each need that a promise, or a plan's own, does not allow."""
    for name, amount, what in needed:
        if not (promise.allows(name, amount) if isinstance(promise, Promise) else name in WORDS[promise]):
            yield f"{what}: `{promise}` does not allow {name}={amount}"


def check_kept(asked: Promise | None, needed: Iterable[Need], what: str) -> None:
    """Raise UsageError for the first need of `what` that the promise asked for, if any, does not allow."""
    for why in () if asked is None else unkept(asked, needed):
        raise UsageError(f"{what}: {why}\nhint: promise more, or leave {what} out")
