"""What elastic jobs do not do yet, refused by name before ranks train."""

from __future__ import annotations

from hocket.artefacts.plan import AllReduce, Plan
from hocket.errors import UsageError
from hocket.parameter_server.choice import ParameterServer
from hocket.policy.policy import Policy
from hocket.settings import Settings

HINT = "\nhint: leave one of them out; docs/elastic.md says what an elastic job can do"


def check_asked(
    settings: Settings,
    *,
    policy: Policy | None = None,
    search: str | None = None,
    parameter_server: ParameterServer | None = None,
) -> None:
    """UsageError names what a script or its settings ask for, and an elastic job does not do."""
    asked = {
        "a policy": policy is not None or settings.policy is not None,
        "a search for a plan": search is not None or settings.search is not None,
        "HOCKET_REORDER": settings.reorder,
        "parameter servers": parameter_server is not None or settings.servers > 0,
        "helpers": settings.helpers > 0,
        "a profile of the script": settings.profile_out is not None,
    }
    for what, wanted in asked.items():
        if wanted:
            raise refusal(what)


def check_plan(plan: Plan) -> None:
    """UsageError names what of a plan cannot go on with other members."""
    if plan.schedule.turns:
        raise refusal("a plan with merged or late gradients")
    if plan.schedule.overlap == "gates":
        raise refusal("a plan whose layers wait at gates")
    for index, bucket in enumerate(plan.buckets):
        if not isinstance(bucket.route, AllReduce):
            raise refusal(f"a plan whose bucket {index} is not an all-reduce")
        if bucket.codec != "none":
            raise refusal(f"a plan whose bucket {index} is rounded to {bucket.codec} on some links")
        if bucket.cards is not None:
            raise refusal(f"a plan whose bucket {index} uses some cards alone")


def refusal(what: str) -> UsageError:
    """Of something that only other jobs can have."""
    return UsageError(f"an elastic job cannot have {what} yet: its state would be lost with a rank{HINT}")
