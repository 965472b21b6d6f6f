"""Refusals, before ranks train, of features that jobs with gradients of compiled functions lack; each error names its feature.

Settings are checked before ranks meet, a given plan once all ranks have it, and decisions of policies as soon as they are known:
each is the same on all ranks, so all ranks refuse it.
"""

from __future__ import annotations

from hocket.artefacts.plan import Gathered, Owned, Plan, Served
from hocket.errors import UsageError
from hocket.settings import Settings
from hocket.training.elastic.refusals import refusal
from hocket.training.programs.source import ProgramSource

SERVERS = (
    "parameter servers run the optimizer, and here it is a function of the script's\n"
    "hint: start the job without servers"
)
HELPERS = (
    "helpers take part in each step of the optimizer, and here it is a function of the script's\n"
    "hint: start the job without helpers"
)


def check_asked(settings: Settings) -> None:
    """Raise a UsageError that names the requested feature that such a job lacks."""
    if settings.coordinator is not None:
        raise refusal("gradients of compiled functions")
    unset = "hint: leave it unset: a job without a plan finds one for its network as it starts"
    asked = {
        SERVERS: settings.servers > 0,
        "HOCKET_STALENESS is of parameter servers, and these run the optimizer, which here is a function of the script's\n"
        "hint: leave it unset": settings.staleness != "0",
        HELPERS: settings.helpers > 0,
        f"HOCKET_SEARCH times the parts of a step, and does not see into compiled functions\n{unset}": (
            settings.search is not None
        ),
        f"HOCKET_REORDER times the parts of a step, and does not see into compiled functions\n{unset}": (
            settings.reorder
        ),
        "`hocket profile` times the parts of a step, and does not see into compiled functions\n"
        "hint: train without a profile: a job without a plan finds one for its network as it starts": (
            settings.profile_out is not None
        ),
        "HOCKET_STEPS_MAX counts steps of the optimizer, and here it is a function of the script's\n"
        "hint: leave it unset, and end the script's own loop": settings.steps_max is not None,
    }
    for sentence, wanted in asked.items():
        if wanted:
            raise UsageError(sentence)


def check_plan(plan: Plan) -> None:
    """Raise a UsageError that names the part of a given plan that needs Python within a step, or ranks that do not train."""
    if any(isinstance(bucket.route, Served) for bucket in plan.buckets):
        raise UsageError(SERVERS)
    if len(plan.workers) < plan.world:
        raise UsageError(HELPERS)
    if plan.schedule.turns:
        raise UsageError(
            "the plan has merged or late gradients, and each call of a compiled function returns the means of its own\n"
            "hint: `hocket plan` under the promise `exact`"
        )
    for index, bucket in enumerate(plan.buckets):
        if isinstance(bucket.route, Gathered):
            raise UsageError(
                f"the plan sends rows of a sparse gradient (bucket {index}), and compiled functions make dense ones\n"
                "hint: a plan without the route `gathered`"
            )
        if isinstance(bucket.route, Owned) and bucket.route.update == "owners":
            raise UsageError(
                f"the plan has owners that update (bucket {index}), and compiled functions update by themselves\n"
                "hint: `hocket plan --update replicas`"
            )


def check_source(source: ProgramSource) -> None:
    """Raise a UsageError that names the part of a plan or policy that such a session cannot run."""
    if any(each.exchanges == "parameters" for each in source.policies):
        raise UsageError(
            "the policy exchanges parameters, which compiled functions hand on as values\nhint: a policy of gradients"
        )
    if source.gates:
        raise UsageError(
            "the plan has gates, and a compiled function has no layers that could wait one by one\n"
            "hint: a plan whose overlap is `barrier`"
        )
