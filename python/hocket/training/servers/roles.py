"""Roles of a job's ranks, which train, serve or help, and the plan of those that train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Plan
from hocket.errors import UsageError
from hocket.job.first_file import of_rank_0
from hocket.parameter_server.choice import ParameterServer
from hocket.parameter_server.plan import served_plan, serves
from hocket.policy.policy import Policy
from hocket.refusals import POLICY, SERVERS, refused
from hocket.settings import Settings
from hocket.training.memory.helpers import helps
from hocket.training.memory.runnable import check_roles
from hocket.training.process import Process


def workers_of(
    process: Process,
    *,
    plan: Plan | None,
    parameter_server: ParameterServer | None,
    gradients: Mapping[str, Gradient],
    settings: Settings,
) -> tuple[int | None, Plan | None]:
    """Return how many ranks train, the first ones, where the others serve or help; and the plan, if one is given. Every rank of the
    job calls this, or if a `parameter_server` or helpers are asked for, every rank that knows the model.

    Raises UsageError: the process has such a model already, the others do something else, or no rank would train.
    """
    if process.is_newcomer:
        # The other ranks have their plan.
        return None, None
    world = process.everyone.world
    if parameter_server is not None:
        workers = parameter_server.workers(world)
    elif settings.helpers:
        if settings.helpers >= world:
            raise UsageError(
                f"{settings.helpers} of {world} ranks are to help, so none would train\n"
                "hint: `hocket run -n WORKERS --helpers HELPERS` starts both; other launchers must start the sum of the two"
            )
        workers = world - settings.helpers
    else:
        plan = plan or _plan_of_rank_0(process, settings)
        if plan is None or len(plan.workers) == plan.world:
            return None, plan
        check_roles(plan, gradients)
        workers = len(plan.workers)
        if plan.world != world:
            raise UsageError(
                f"the plan is for {plan.world} ranks, the job has {world}\nhint: make a new plan"
            )
    if process.serves:
        # The job goes on: this call alone is refused.
        raise UsageError("ranks that do not train serve or help one model of a process, and have one already")
    does, before = part_of(plan, parameter_server), process.besides
    if before is not None and before != (workers, does):
        others = "all ranks train" if before[0] == world else f"those from {before[0]} on {before[1]}"
        raise UsageError(
            f"ranks from {workers} on are to {does}, and {others} since the first model was distributed\n"
            "hint: ranks keep their parts when a model is distributed again"
        )
    return workers, plan


def part_of(plan: Plan | None, parameter_server: ParameterServer | None) -> Literal["serve", "help"]:
    """Return what ranks that do not train do. `plan`: from `workers_of`."""
    return "help" if parameter_server is None and (plan is None or helps(plan)) else "serve"


def plan_with_helpers(process: Process, *, plan: Plan | None, settings: Settings) -> Plan:
    """Return the given plan of a job that was started with helpers. UsageError: there is none, or it has none for them."""
    plan = plan or _plan_of_rank_0(process, settings)
    if plan is None:
        raise UsageError(
            f"{settings.helpers} helpers, and no plan says what they own\n"
            f"hint: `hocket plan --helpers {settings.helpers}` makes one"
        )
    if not helps(plan):
        raise UsageError(
            f"plan `{plan.label}` has nothing for helpers\nhint: `hocket plan --helpers`, or no helpers"
        )
    return plan


def plan_with(
    choice: ParameterServer,
    process: Process,
    *,
    plan: Plan | None,
    policy: Policy | None,
    gradients: Mapping[str, Gradient],
    settings: Settings,
) -> Plan:
    """Return the plan of a job that was started with these servers: the given one, whose served buckets they hold, or one in which
    they hold all buckets.

    Raises UsageError: the plan has no bucket for them, or another argument decides on all buckets, too.
    """
    plan = plan or _plan_of_rank_0(process, settings)
    if plan is None:
        if policy is not None:
            raise refused(SERVERS, POLICY, policy=type(policy).__name__)
        return served_plan(list(gradients.values()), process.everyone.world, choice)
    if not serves(plan):
        raise UsageError(
            f"plan `{plan.label}` has no bucket for the {choice.servers} parameter servers\n"
            "hint: buckets of the route `served`, or no servers"
        )
    if choice.staleness != 0:
        raise UsageError(
            f"{choice.title}: plan `{plan.label}` says how far apart workers may be, for each of its served buckets\n"
            "hint: leave the staleness out"
        )
    return plan


def _plan_of_rank_0(process: Process, settings: Settings) -> Plan | None:
    # The store tells exchanges of all ranks from those of workers by their names.
    what = "plan" if process.besides is None else "plan of workers"
    return of_rank_0(process.job, what, settings.plan, Plan)
