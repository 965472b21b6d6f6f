"""Whether merged or late gradients pay for a plan: its schedule, where the promise allows one, and what is said of it."""

from __future__ import annotations

import msgspec

from hocket.artefacts.plan import Plan, Schedule
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import LEVELS, Promise
from hocket.artefacts.schedule_check import divided
from hocket.planning.links import LinkGraph
from hocket.planning.reason import seconds
from hocket.planning.routes import reduces_means
from hocket.planning.schedules import Choice, front
from hocket.planning.walk import Rule

FASTER = 0.97
"""What an iteration must take of the synchronous one: for less, nobody should train otherwise than synchronously."""

ALIKE = 1.02
"""Iterations that are as short as the shortest one: of these, the schedule that keeps most updates and is least late."""


def scheduled(plan: Plan, graph: LinkGraph, profile: Profile, promise: Promise, rate: Rule) -> Plan:
    """The plan with the schedule that gains most, if one does, and with a sentence on it; else the plan as it is.

    Raises UsageError for a gradient that the profile lacks.
    """
    if not promise.allows("merged"):
        return plan
    if not all(reduces_means(bucket) for bucket in plan.buckets):
        said = " Gradients are neither merged nor late where not all of them are reduced to a mean for all ranks."
        return msgspec.structs.replace(plan, reason=plan.reason + said)
    variables = [bucket.variables for bucket in plan.buckets]
    choices = front(plan, graph, profile, promise, gates=False, rate=rate)
    # Turns of one iteration that are applied in it are what the plan does anyway, maybe at gates.
    changing = [
        each
        for each in choices
        if (merge_of(each.schedule) > 1 or each.schedule.delay_max)
        and divided(each.schedule, variables) is None
    ]
    synchronous_s = plan.predicted_step_s
    best = _best(changing)
    if best is None or best.iteration_s > FASTER * synchronous_s:
        said = " Merged or late gradients would gain nothing: none are used."
        return msgspec.structs.replace(plan, reason=plan.reason + said)
    evidence = msgspec.structs.replace(plan.evidence, predicted_step_s=best.iteration_s, bound_step_s=None)
    return msgspec.structs.replace(
        plan,
        schedule=best.schedule,
        promise=max((plan.promise, "delayed" if best.schedule.delay_max else "merged"), key=LEVELS.index),
        evidence=evidence,
        label=f"{plan.label}, {_name(best.schedule)}",
        reason=plan.reason + _said(best, synchronous_s),
    )


def merge_of(schedule: Schedule) -> int:
    """Of how many iterations an update is, at most."""
    return max((turn.last - turn.first + 1 for each in schedule.turns for turn in each), default=1)


def _best(choices: list[Choice]) -> Choice | None:
    if not choices:
        return None
    shortest_s = min(each.iteration_s for each in choices)
    alike = [each for each in choices if each.iteration_s <= ALIKE * shortest_s]
    return max(alike, key=lambda each: (round(each.updates_per_iteration, 6), -each.schedule.delay_max))


def _name(schedule: Schedule) -> str:
    words = []
    if (merged := merge_of(schedule)) > 1:
        words.append(f"merged up to {merged}")
    if schedule.delay_max:
        words.append(f"late by up to {schedule.delay_max}")
    return " and ".join(words)


def _said(choice: Choice, synchronous_s: float) -> str:
    schedule = choice.schedule
    late = f"applied up to {schedule.delay_max} late" if schedule.delay_max else "applied in time"
    return (
        f" With gradients {late}, and {choice.updates_per_iteration:.2f} updates per iteration, an iteration is predicted to take "
        f"{seconds(choice.iteration_s)} instead of {seconds(synchronous_s)}. How well that learns is not known here."
    )
