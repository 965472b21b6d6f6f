"""Features that settings, plans and policies ask for, as `refusals.py` names them, alike on all ranks."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from hocket.artefacts.needs import late_by
from hocket.artefacts.plan import Gathered, Plan, Served, Traced
from hocket.planning.seconds import updates
from hocket.refusals import (
    BESIDE_OWNERS,
    ELASTIC,
    GATES,
    GRACE,
    HELPERS,
    INSIDE,
    LIBRARY,
    LOCAL,
    OWNERS,
    PROFILE,
    REFUSED,
    REORDER,
    SEARCH,
    SERVERS,
    SPARSE,
    TURNS,
    WEIGHED_LATE,
    check,
    refused,
)
from hocket.settings import Settings

if TYPE_CHECKING:
    from hocket.training.memory.buckets import CompiledBucket
    from hocket.training.programs.source import ProgramSource

Feature = tuple[str, dict[str, Any]]


def of_settings(settings: Settings, *, servers: bool = False) -> Iterator[Feature]:
    """Yield features that the settings ask for. `servers`: whether the script asks for parameter servers."""
    asked = {
        ELASTIC: settings.coordinator is not None,
        SEARCH: settings.search is not None,
        REORDER: settings.reorder,
        SERVERS: servers or settings.servers > 0,
        "HOCKET_STALENESS": settings.staleness != "0",
        HELPERS: settings.helpers > 0,
        PROFILE: settings.profile_out is not None,
        "HOCKET_STEPS_MAX": settings.steps_max is not None,
    }
    return ((name, {}) for name, wanted in asked.items() if wanted)


def check_elastic_settings(settings: Settings, *, servers: bool = False) -> None:
    """Raise UsageError for a feature, requested by a script or its settings, that an elastic job lacks."""
    check(ELASTIC, of_settings(settings, servers=servers))


def of_plan(plan: Plan) -> Iterator[Feature]:
    """Yield features of a plan."""
    if plan.schedule.overlap == "gates":
        yield GATES, {}
    outer = plan.schedule.outer
    if outer is not None:
        yield LOCAL, {}
        if outer.inside:
            yield INSIDE, {}
    elif plan.schedule.turns:
        yield TURNS, {}
    for index, bucket in enumerate(plan.buckets):
        route = bucket.route
        if isinstance(route, Gathered):
            yield SPARSE, {"variable": bucket.variables[0], "index": index}
        if isinstance(route, Served):
            yield SERVERS, {}
        if updates(bucket):
            yield OWNERS, {"index": index}
    if any(isinstance(bucket.route, Traced) for bucket in plan.buckets) and any(map(updates, plan.buckets)):
        yield BESIDE_OWNERS, {"what": "a policy"}
    if len(plan.workers) < plan.world:
        yield HELPERS, {}


def of_source(source: ProgramSource) -> Iterator[Feature]:
    """Yield features of the plan with which a job begins."""
    yield from of_plan(source.plan(source.epochs.current))


def check_inside(source: ProgramSource) -> None:
    """Raise UsageError if ranks of a site are to step together, and something of the plan would let them go apart."""
    schedule = source.plan(source.epochs.current).schedule
    if (outer := schedule.outer) is None or not outer.inside:
        return
    if outer.grace_s is not None:
        raise refused(INSIDE, GRACE, grace_s=f"{outer.grace_s:g}")
    if outer.weights != "ranks" and (late := late_by(schedule)):
        raise refused(INSIDE, WEIGHED_LATE, late=late, weights=repr(outer.weights))


def check_elastic(plan: Plan) -> None:
    """Raise UsageError for a part of the plan that cannot go on with other members."""
    check(ELASTIC, of_plan(plan))


def runs_elastic(plan: Plan) -> bool:
    """Return whether `check_elastic` accepts the plan."""
    return not any((ELASTIC, name) in REFUSED for name, _ in of_plan(plan))


def check_members_libraries(buckets: Sequence[CompiledBucket]) -> None:
    """Raise UsageError if a policy of an elastic job calls a library, whose communicators a lost rank would break."""
    for library in libraries_of(buckets):
        raise refused(ELASTIC, LIBRARY, library=library)


def libraries_of(buckets: Sequence[CompiledBucket]) -> Iterator[str]:
    """Yield the libraries that the buckets' programs call."""
    for bucket in buckets:
        program = bucket.program
        for op in itertools.chain.from_iterable(map(program.ops, range(program.world))):
            if "library" in op:
                yield op["library"]
