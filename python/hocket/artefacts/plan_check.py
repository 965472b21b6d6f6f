"""Checks of plans: each element is in one part, routes use existing ranks, and the schedule keeps the promise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Literal, NamedTuple

from hocket import _native
from hocket.artefacts.algorithms import ALL_REDUCES, BY_NAME, misfit
from hocket.artefacts.dtypes import ITEM_BYTES
from hocket.artefacts.gradient import Gradient
from hocket.artefacts.needs import needs_of, unkept
from hocket.artefacts.plan import (
    AllReduce,
    Begun,
    Bucket,
    Gathered,
    Owned,
    Part,
    Plan,
    Schedule,
    Served,
    TwoLevel,
)
from hocket.artefacts.promise import WORDS
from hocket.errors import ArtefactError

Fault = Literal[
    "world", "order", "dtype", "elements", "route", "codec", "cards", "schedule", "promise", "model"
]


class Finding(NamedTuple):
    """Fault, and a description of its place."""

    fault: Fault
    message: str


def check(plan: Plan, model: Sequence[Gradient] | None = None, *, name: str = "plan") -> None:
    """Raise ArtefactError with the first finding, if there is one. `name`: the plan's name in the message."""
    for found in findings(plan, model):
        hint = "\nhint: profile the script again and make a new plan" if model is not None else ""
        raise ArtefactError(f"{name}: {found.message}{hint}")


def findings(plan: Plan, model: Sequence[Gradient] | None = None) -> Iterator[Finding]:
    """Yield all faults. With the `model`, its gradients are compared, and parts beyond a variable's end are found, too."""
    yield from _world(plan)
    for index, bucket in enumerate(plan.buckets):
        yield from bucket_findings(f"bucket {index}", bucket, plan)
    yield from _overlaps(plan)
    for schedule in (plan.schedule, *plan.safer):
        for message in _native.schedule_faults(schedule, len(plan.buckets)):
            yield Finding("schedule", message)
        if schedule.steps == "own first" and schedule.overlap == "gates":
            yield Finding("schedule", "own gradients go first until the end of an iteration: not with gates")
        yield from _local(schedule)
        yield from _inside(schedule, plan.workers)
    yield from _promise(plan)
    if model is not None:
        yield from _model(plan, model)


def _promise(plan: Plan) -> Iterator[Finding]:
    """Find an unknown word (a plan made in Python may have any), and needs that the word does not name."""
    if plan.promise not in WORDS:
        known = ", ".join(WORDS)
        yield Finding(
            "promise", f"a plan's promise is one word, without amounts: {known}, not `{plan.promise}`"
        )
        return
    for why in unkept(plan.promise, needs_of(plan)):
        yield Finding("promise", why)


def _local(schedule: Schedule) -> Iterator[Finding]:
    """Find faults of a schedule by which ranks step alone, or one that has parts of such a schedule."""
    if (schedule.steps == "local") != (schedule.outer is not None):
        yield Finding("schedule", "an outer optimizer belongs to steps that are local, and these need one")
    elif schedule.outer is not None:
        outer, sent = schedule.outer, [turn.sent for own in schedule.turns for turn in own]
        if not sent or any(not isinstance(each, Begun) or each.point != "backward_end" for each in sent):
            yield Finding(
                "schedule", "local steps are exchanged in turns that leave at the end of an iteration"
            )
        if schedule.overlap == "gates":
            yield Finding("schedule", "local steps are exchanged between two steps: not with gates")
        if outer.rate <= 0 or not 0 <= outer.momentum < 1 or (outer.nesterov and not outer.momentum):
            numbers = f"an outer rate of {outer.rate:g} and momentum of {outer.momentum:g}"
            yield Finding("schedule", f"{numbers}: above 0, and from 0 to below 1; Nesterov's is above 0")
        if outer.mix is not None and outer.mix > 1:
            yield Finding("schedule", f"a mix of {outer.mix:g}: from 0 to 1")


def _inside(schedule: Schedule, workers: Sequence[int]) -> Iterator[Finding]:
    """Find ranks that are in no site, or in two of them."""
    sites = () if schedule.outer is None else schedule.outer.inside
    ranks = sorted(rank for site in sites for rank in site)
    if sites and (ranks != list(workers) or not all(sites)):
        yield Finding(
            "schedule", f"sites of ranks {[list(site) for site in sites]}: each of {list(workers)} is in one"
        )


def _world(plan: Plan) -> Iterator[Finding]:
    if plan.world < 1:
        yield Finding("world", f"world of {plan.world} ranks: a job has at least one")
    workers = plan.workers
    if not workers or tuple(sorted(set(workers))) != workers or not _within(workers, plan.world):
        yield Finding("world", f"workers {list(workers)} are not ranks of a world of {plan.world}, ascending")


def _within(ranks: Sequence[int], world: int) -> bool:
    return all(0 <= rank < world for rank in ranks)


def bucket_findings(where: str, bucket: Bucket, plan: Plan) -> Iterator[Finding]:
    """Yield faults of one bucket of a plan, seen without the model. `where`: the bucket in the messages."""
    if bucket.dtype not in ITEM_BYTES:
        yield Finding("dtype", f"{where}: dtype {bucket.dtype}: known are {', '.join(ITEM_BYTES)}")
    if not bucket.parts:
        yield Finding("elements", f"{where} has no parts")
    for part in bucket.parts:
        if part.start < 0 or (part.stop is not None and part.stop < part.start):
            yield Finding("elements", f"{where}: elements {part.start} to {part.stop} of {part.variable}")
    if bucket.chunk_bytes < 1:
        yield Finding("route", f"{where}: chunks of {bucket.chunk_bytes} bytes")
    if bucket.cards is not None and (
        not bucket.cards or len(set(bucket.cards)) != len(bucket.cards) or min(bucket.cards) < 0
    ):
        yield Finding("cards", f"{where}: cards {list(bucket.cards)}: each once, from 0 on")
    yield from _ranks(where, bucket, plan)
    yield from _route(where, bucket, plan)


def _ranks(where: str, bucket: Bucket, plan: Plan) -> Iterator[Finding]:
    world = plan.world
    if len(set(bucket.order)) != len(bucket.order) or not _within(bucket.order, world):
        yield Finding(
            "order", f"{where}: order {list(bucket.order)} is not of ranks of a world of {world}, each once"
        )
    missing = set(plan.workers) - set(bucket.order)
    if missing and not isinstance(bucket.route, Served):
        yield Finding("order", f"{where}: its order lacks worker {min(missing)}")
    idle = set(bucket.order) - set(plan.workers)
    if idle and not isinstance(bucket.route, Owned | Served):
        yield Finding("order", f"{where}: rank {min(idle)} of its order is no worker")
    if bucket.codec == "none" and bucket.codec_links:
        yield Finding("codec", f"{where}: links for a codec, and no codec")
    for pair in bucket.codec_links:
        if pair[0] == pair[1] or not _within(pair, world):
            yield Finding("codec", f"{where}: {bucket.codec} on {list(pair)}, no pair of a world of {world}")


def _route(where: str, bucket: Bucket, plan: Plan) -> Iterator[Finding]:
    route = bucket.route
    if isinstance(route, AllReduce):
        yield from _all_reduce(where, route, bucket)
    elif isinstance(route, Owned):
        yield from _owned(where, route, bucket, plan)
    elif isinstance(route, Served):
        yield from _served(where, route, plan)
    elif isinstance(route, Gathered):
        yield from _gathered(where, route, bucket)


def _gathered(where: str, route: Gathered, bucket: Bucket) -> Iterator[Finding]:
    entry = BY_NAME.get(route.algorithm)
    if route.rows < 1 or entry is None or "all_gather" not in entry.does or entry.takes != "nothing":
        yield Finding("route", f"{where}: {route.rows} rows by `{route.algorithm}`")
    if route.row_elements < 1 or not bucket.elements or bucket.elements % route.row_elements:
        yield Finding("route", f"{where}: {bucket.elements} elements are no rows of {route.row_elements}")
    if len(bucket.parts) > 1 or any(part.start for part in bucket.parts):
        yield Finding("route", f"{where}: rows are of one whole variable")
    if bucket.codec != "none":
        yield Finding("codec", f"{where} has {bucket.codec} on links: rows have no codec")


def _owned(where: str, route: Owned, bucket: Bucket, plan: Plan) -> Iterator[Finding]:
    world, ranks = plan.world, [owner.rank for owner in route.owners]
    if not ranks or len(set(ranks)) != len(ranks):
        yield Finding("route", f"{where}: owners {ranks}: at least one, and each once")
    outside = [rank for rank in ranks if not 0 <= rank < world]
    if outside:
        yield Finding("route", f"{where}: owner {outside[0]} is not of a world of {world}")
    if not set(ranks) <= set(bucket.order):
        yield Finding("route", f"{where}: its order lacks owner {min(set(ranks) - set(bucket.order))}")
    if any(owner.share < 0 for owner in route.owners) or not any(owner.share for owner in route.owners):
        yield Finding("route", f"{where}: shares of owners: 0 or more, and one at least more than 0")
    if isinstance(route.via, TwoLevel):
        stations, workers = route.via.stations, len(plan.workers)
        if sum(stations) != workers or min(stations, default=0) < 1:
            yield Finding("route", f"{where}: stations of {list(stations)} for {workers} workers")


def _served(where: str, route: Served, plan: Plan) -> Iterator[Finding]:
    servers = route.servers
    if not servers or len(set(servers)) != len(servers) or not _within(servers, plan.world):
        yield Finding(
            "route", f"{where}: servers {list(servers)} are not of a world of {plan.world}, each once"
        )
    if set(servers) & set(plan.workers):
        yield Finding("route", f"{where}: server {min(set(servers) & set(plan.workers))} is a worker")
    if route.staleness is not None and route.staleness < 0:
        yield Finding("route", f"{where}: staleness {route.staleness}: it must be 0 or more")


def _all_reduce(where: str, route: AllReduce, bucket: Bucket) -> Iterator[Finding]:
    if route.algorithm not in ALL_REDUCES:
        yield Finding("route", f"{where}: `{route.algorithm}` is not one of {', '.join(ALL_REDUCES)}")
        return
    takes, count = BY_NAME[route.algorithm].takes, len(route.sizes)
    if (takes == "nothing" and count) or (takes in ("base", "servers") and count != 1):
        yield Finding("route", f"{where}: `{route.algorithm}` takes {takes}, not {list(route.sizes)}")
        return
    if takes == "trees":
        if (why := misfit(route.algorithm, route.sizes, len(bucket.order))) is not None:
            yield Finding("route", f"{where}: {why}")
        return
    if takes != "shares" and min(route.sizes, default=1) < 1:
        yield Finding(
            "route", f"{where}: `{route.algorithm}` takes {takes} from 1 on, not {list(route.sizes)}"
        )
        return
    if takes == "sizes" and sum(route.sizes) != len(bucket.order):
        yield Finding("route", f"{where}: groups of {list(route.sizes)} for {len(bucket.order)} ranks")
    n = len(bucket.order)
    if takes == "shares" and not (
        count == 2 * n and min(route.sizes) >= 0 and any(route.sizes[:n]) and any(route.sizes[n:])
    ):
        shares = (
            f"shares {list(route.sizes)} for {n} ranks: it is one to collect of each, and then one to spread"
        )
        yield Finding("route", f"{where}: {shares}")
    if takes == "servers" and not 1 <= route.sizes[0] <= len(bucket.order):
        yield Finding("route", f"{where}: {route.sizes[0]} owners among {len(bucket.order)} ranks")


def _overlaps(plan: Plan) -> Iterator[Finding]:
    """Find elements in two parts, as far as that is seen without the model."""
    for name, all_parts in _by_variable(plan).items():
        parts = [(at, part) for at, part in all_parts if part.stop != part.start]
        for (_, before), (at, part) in pairwise(parts):
            if before.stop is None or part.start < before.stop:
                yield Finding("elements", f"{name}: element {part.start} is in two parts, one of bucket {at}")


def _by_variable(plan: Plan) -> dict[str, list[tuple[int, Part]]]:
    parts: dict[str, list[tuple[int, Part]]] = {}
    for index, bucket in enumerate(plan.buckets):
        for part in bucket.parts:
            parts.setdefault(part.variable, []).append((index, part))
    return {name: sorted(each, key=lambda entry: entry[1].start) for name, each in parts.items()}


def _model(plan: Plan, model: Sequence[Gradient]) -> Iterator[Finding]:
    known = {each.name: each for each in model}
    parts = _by_variable(plan)
    for name in parts:
        if name not in known:
            yield Finding("model", f"it is for another model: {name} is not a parameter of this one")
    for gradient in model:
        covered = 0
        for _, part in parts.get(gradient.name, []):
            stop = gradient.elements if part.stop is None else part.stop
            if part.start > covered:
                yield Finding(
                    "elements", f"{gradient.name}: elements {covered} to {part.start} are in no part"
                )
            if stop > gradient.elements:
                yield Finding(
                    "model",
                    f"it is for another model: {gradient.name} has {gradient.elements} elements, not {stop}",
                )
            covered = max(covered, stop)
        if gradient.name not in parts:
            yield Finding("elements", f"{gradient.name} is in no part")
        elif covered < gradient.elements:
            yield Finding(
                "elements", f"{gradient.name}: elements {covered} to {gradient.elements} are in no part"
            )
    for index, bucket in enumerate(plan.buckets):
        yield from _content(f"bucket {index}", bucket, known)


def _content(where: str, bucket: Bucket, known: dict[str, Gradient]) -> Iterator[Finding]:
    elements = 0
    for part in bucket.parts:
        gradient = known.get(part.variable)
        if gradient is None:
            return
        elements += (gradient.elements if part.stop is None else part.stop) - part.start
        if gradient.dtype != bucket.dtype:
            yield Finding(
                "dtype", f"{where} of {bucket.dtype} has {part.variable}, which is {gradient.dtype}"
            )
        if isinstance(bucket.route, Gathered) and bucket.route.row_elements * gradient.rows != elements:
            yield Finding(
                "model",
                f"{where} has rows of {bucket.route.row_elements}, {part.variable} has {gradient.rows}",
            )
    if elements != bucket.elements:
        yield Finding("model", f"{where} has {bucket.elements} elements, and its parts {elements}")
