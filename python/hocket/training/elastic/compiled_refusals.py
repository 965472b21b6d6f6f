"""Refusals, before ranks train, of features that jobs with gradients of compiled functions lack; each error names its feature.

Settings are checked before ranks meet, a given plan once all ranks have it, and decisions of policies as soon as they are known:
each is the same on all ranks, so all ranks refuse it.
"""

from __future__ import annotations

from hocket.artefacts.plan import Gathered, Owned, Plan, Served
from hocket.refusals import COMPILED, refused
from hocket.settings import Settings
from hocket.training.elastic.refusals import refusal
from hocket.training.programs.source import ProgramSource


def check_asked(settings: Settings) -> None:
    """Raise a UsageError that names the requested feature that such a job lacks."""
    if settings.coordinator is not None:
        raise refusal("gradients of compiled functions")
    asked = {
        "parameter servers": settings.servers > 0,
        "HOCKET_STALENESS": settings.staleness != "0",
        "helpers": settings.helpers > 0,
        "HOCKET_SEARCH": settings.search is not None,
        "HOCKET_REORDER": settings.reorder,
        "`hocket profile`": settings.profile_out is not None,
        "HOCKET_STEPS_MAX": settings.steps_max is not None,
    }
    for what, wanted in asked.items():
        if wanted:
            raise refused(COMPILED, what)


def check_plan(plan: Plan) -> None:
    """Raise a UsageError that names the part of a given plan that needs Python within a step, or ranks that do not train."""
    if any(isinstance(bucket.route, Served) for bucket in plan.buckets):
        raise refused(COMPILED, "parameter servers")
    if len(plan.workers) < plan.world:
        raise refused(COMPILED, "helpers")
    if plan.schedule.turns:
        raise refused(COMPILED, "merged or late gradients")
    for index, bucket in enumerate(plan.buckets):
        if isinstance(bucket.route, Gathered):
            raise refused(COMPILED, "sparse gradients", index=index)
        if isinstance(bucket.route, Owned) and bucket.route.update == "owners":
            raise refused(COMPILED, "updates by owners", index=index)


def check_source(source: ProgramSource) -> None:
    """Raise a UsageError that names the part of a plan or policy that such a session cannot run."""
    if any(each.exchanges == "parameters" for each in source.policies):
        raise refused(COMPILED, "policies of parameters")
    if source.gates:
        raise refused(COMPILED, "gates")
