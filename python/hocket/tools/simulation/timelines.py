"""Iterations of a schedule that are simulated, and the pace that it keeps in them."""

from __future__ import annotations

from collections.abc import Sequence

from hocket.artefacts.plan import Schedule
from hocket.errors import UsageError

PERIODS = 6
"""Least number of periods that are run: the first ones fill the links."""


def refuse_turns(schedule: Schedule, what: str) -> None:
    """Raise UsageError for a schedule of several iterations, where `what` is of one."""
    if schedule.turns:
        raise UsageError(
            f"{what} one iteration, and the plan's gradients travel in turns of several\n"
            "hint: the flow engine runs them: --fidelity flow"
        )


def outlasts(schedule: Schedule) -> bool:
    """Return whether launches may outlast their iteration: until a later one, or until the gates of the next forward.

    >>> outlasts(Schedule()), outlasts(Schedule(overlap="gates"))
    (False, True)
    """
    return bool(schedule.turns) or schedule.overlap == "gates"


def iterations(schedule: Schedule, steps: int) -> int:
    """Return the number of iterations to run, so that a schedule reaches the pace that it keeps."""
    return max(steps, PERIODS * schedule.period) if outlasts(schedule) else steps


def steady_s(ends_s: Sequence[Sequence[float]], schedule: Schedule) -> float:
    """Return mean seconds of an iteration, from the ends of iterations by rank; where launches outlast theirs, over the second
    half.

    >>> steady_s([[1.0], [2.0]], Schedule())
    1.0
    """
    last = [max(ends) for ends in ends_s]
    if not outlasts(schedule):
        return last[-1] / len(last)
    half = len(last) // 2 // schedule.period * schedule.period
    return (last[-1] - last[half - 1]) / (len(last) - half)
