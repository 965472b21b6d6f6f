"""Checks of a schedule against what it is used for; `_native.schedule_faults` checks it by itself."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hocket.artefacts.plan import Plan, Schedule
from hocket.errors import ArtefactError


def check_workload(plan: Plan, *, batch: int | None, accumulation: int | None, rank: int) -> None:
    """Raise ArtefactError if the plan has merged or late gradients, and was made for other iterations than those of a rank, which
    has `batch` samples in a backward, and `accumulation` backwards in an iteration. None: unknown.

    The guard has judged batches of another size, and computation hides more or less than was planned.
    """
    different = [
        f"{planned} {what}, and rank {rank} has {own}"
        for planned, own, what in (
            (plan.batch, batch, "samples per backward"),
            (plan.accumulation, accumulation, "backwards per iteration"),
        )
        if planned is not None and own is not None and planned != own
    ]
    if plan.schedule.turns and different:
        raise ArtefactError(
            f"plan `{plan.label}`: its schedule of merged or late gradients was made for {'; '.join(different)}\n"
            "hint: `hocket profile` the script as it is now and `hocket plan` again, or use a plan without merged or late gradients"
        )


def divided(schedule: Schedule, buckets: Sequence[Collection[str]]) -> tuple[str, int, int] | None:
    """Return a variable with parts in two buckets whose turns differ, and these buckets; `buckets`: the variables of each.

    A gradient is applied as a whole, so all of its parts have the same turns; they may be sent one after the other.
    """
    first_of: dict[str, int] = {}
    for index, names in enumerate(buckets):
        for name in names:
            other = first_of.setdefault(name, index)
            kept, own = (
                [(turn.first, turn.last, turn.due) for turn in schedule.turns[each]]
                for each in (other, index)
            )
            if kept != own:
                return name, other, index
    return None
