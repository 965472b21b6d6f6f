"""Plans that sessions run, whatever their framework: sound, for the model, and with nothing that no session has."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace as replaced

from hocket.artefacts.gradient import Gradient
from hocket.artefacts.plan import Bucket, Plan, Schedule, Served, Traced
from hocket.artefacts.plan_check import check
from hocket.artefacts.schedule_check import divided
from hocket.errors import UsageError
from hocket.planning.routes import reduces_means
from hocket.refusals import MEANS, TURNS, refused
from hocket.training.memory import helpers
from hocket.training.memory.arenas import arenas_of, arranged


def check_runs(plan: Plan, gradients: Mapping[str, Gradient]) -> None:
    """Raise ArtefactError if the plan is for another model or not sound, UsageError if it has parts that sessions do not run."""
    check(plan, tuple(gradients.values()))
    hint = "\nhint: `hocket plan` makes plans that jobs run"
    check_roles(plan, gradients)
    for schedule in (plan.schedule, *plan.safer):
        _check_turns(replaced(plan, schedule=schedule), hint)


def check_roles(plan: Plan, gradients: Mapping[str, Gradient]) -> None:
    """Raise a UsageError that names ranks which neither train nor help nor serve, or a variable that servers hold only in part."""
    workers = len(plan.workers)
    if plan.workers != tuple(range(workers)):
        raise UsageError("plan: ranks that do not compute come after all that do")
    helpers.check_helpers(plan)
    arenas = arenas_of([bucket.parts for bucket in arranged(plan, gradients).buckets], gradients)
    for arena in arenas:
        kinds = {isinstance(plan.buckets[at].route, Served) for at in arena.numbers}
        if len(kinds) > 1:
            raise UsageError(
                f"plan: buckets {', '.join(map(str, arena.numbers))} share variables, and servers hold only some of them\n"
                "hint: a variable is on servers as a whole, or not at all"
            )


def _check_turns(plan: Plan, hint: str) -> None:
    """Raise a UsageError that names the part of a schedule that sessions do not run."""
    schedule = plan.schedule
    if not schedule.turns:
        return
    index = next((at for at, bucket in enumerate(plan.buckets) if not _takes_turns(bucket, schedule)), None)
    if index is not None:
        raise refused(MEANS, TURNS, where=f"plan: bucket {index} does not reduce means for all ranks")
    if (found := divided(schedule, [bucket.variables for bucket in plan.buckets])) is not None:
        name, one, other = found
        raise UsageError(
            f"plan: parts of `{name}` are in buckets {one} and {other}, whose turns differ: a gradient is applied as a "
            f"whole{hint}"
        )


def _takes_turns(bucket: Bucket, schedule: Schedule) -> bool:
    """Return whether the bucket brings all ranks the same, so that a schedule may sum it over iterations: a policy may also keep a
    part of how far ranks came for the next exchange."""
    return reduces_means(bucket) or (schedule.steps == "local" and isinstance(bucket.route, Traced))
