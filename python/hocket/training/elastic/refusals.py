"""Refusals, before ranks train, of features that elastic jobs do not have yet; each error names its feature."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from hocket.artefacts.plan import AllReduce, Gathered, Owned, Plan, Traced
from hocket.errors import UsageError
from hocket.parameter_server.choice import ParameterServer
from hocket.refusals import ELASTIC, refused
from hocket.settings import Settings
from hocket.training.memory.buckets import CompiledBucket
from hocket.training.programs.source import ProgramSource


def check_asked(
    settings: Settings, *, search: str | None = None, parameter_server: ParameterServer | None = None
) -> None:
    """Raise a UsageError that names the feature, requested by a script or its settings, that an elastic job lacks."""
    asked = {
        "a search for a plan": search is not None or settings.search is not None,
        "HOCKET_REORDER": settings.reorder,
        "parameter servers": parameter_server is not None or settings.servers > 0,
        "helpers": settings.helpers > 0,
        "a profile of the script": settings.profile_out is not None,
    }
    for what, wanted in asked.items():
        if wanted:
            raise refusal(what)


def check_source(source: ProgramSource) -> None:
    """Raise a UsageError that names the part of a plan or policy that cannot go on with other members."""
    for policy in source.policies:
        if policy.exchanges == "parameters":
            raise refusal("policy {policy}, which exchanges parameters", policy=type(policy).__name__)
    check_plan(source.plan(source.epochs.current))


def check_plan(plan: Plan) -> None:
    """Raise a UsageError that names the part of a plan that cannot go on with other members."""
    if plan.schedule.overlap == "gates":
        raise refusal("a plan or a policy whose layers wait at gates")
    for index, bucket in enumerate(plan.buckets):
        route = bucket.route
        if isinstance(route, Gathered):
            raise refusal("sparse gradients", variable=bucket.variables[0], index=index)
        if not isinstance(route, AllReduce | Traced) and not (
            isinstance(route, Owned) and route.update == "replicas"
        ):
            raise refusal(
                "a plan whose bucket {index} is neither an all-reduce nor a policy's, nor comes from owners as a mean",
                index=index,
            )
        if bucket.cards is not None:
            raise refusal("a plan whose bucket {index} uses some cards alone", index=index)


def runs_elastic(plan: Plan) -> bool:
    """Return whether `check_plan` accepts the plan."""
    try:
        check_plan(plan)
    except UsageError:
        return False
    return True


def check_libraries(buckets: Sequence[CompiledBucket]) -> None:
    """Raise UsageError if a policy calls a library, whose communicators a lost rank would break."""
    for bucket in buckets:
        program = bucket.program
        for op in itertools.chain.from_iterable(map(program.ops, range(program.world))):
            if "library" in op:
                raise refusal("a policy that calls {library}", library=op["library"])


def refusal(what: str, **facts: object) -> UsageError:
    """Return the error for a feature that only other jobs can have."""
    return refused(ELASTIC, what, **facts)
