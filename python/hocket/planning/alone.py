"""Choice of how seldom ranks that may step alone exchange how far they came: as often as their network lets them.

What ranks learn by steps alone is not known beforehand, but more of them are hardly better for learning. So the schedule has the
fewest with which exchanges take next to nothing of the time, or as many as the promise allows.
"""

from __future__ import annotations

from msgspec.structs import replace

from hocket.artefacts.local import Local, localized
from hocket.artefacts.network import Network
from hocket.artefacts.plan import Candidate, Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise
from hocket.planning.reason import seconds
from hocket.planning.schedules import steady

WAITS = 0.03
"""Share of an iteration's computation that exchanges may add to it."""

FASTER = 0.97
"""Fraction of the other plan's time above which steps alone are not worth their effects."""


def instead_of(other: Plan, plan: Plan, graph: Network, profile: Profile, promise: Promise) -> Plan:
    """Return the plan with steps alone, if the promise allows them and they are faster than the `other` plan, and else that, with a
    sentence on it.

    Raises UsageError for a gradient that the profile lacks.
    """
    most = promise.local or 1
    if most < 2:
        return other
    own_s = profile.step_s
    tried = [
        (local, steady(localized(plan, local), graph, profile).iteration_s)
        for late in range((promise.delay or 0) + 1)
        for every in _numbers(most)
        if late < every
        for local in [Local(every=every, late=late)]
    ]
    enough = [each for each in tried if each[1] <= (1 + WAITS) * own_s]
    if enough:
        local, iteration_s = min(enough, key=lambda each: (each[0].every, each[0].late))
    else:
        local, iteration_s = min(tried, key=lambda each: (each[1], each[0].late))
    if iteration_s > FASTER * other.predicted_step_s:
        words = (
            f" Steps alone would take {seconds(iteration_s)} each, which is not faster: ranks step together."
        )
        return replace(other, reason=other.reason + words)
    made = localized(plan, local)
    late = f", and go on for {local.late} while that is under way" if local.late else ""
    words = (
        f" Ranks step alone and exchange how far they came once in {local.every} steps{late}: an iteration is predicted to take "
        f"{seconds(iteration_s)} instead of {seconds(other.predicted_step_s)}. How they learn by it is not known beforehand: "
        "`hocket check` compares it."
    )
    evidence = replace(
        other.evidence,
        predicted_step_s=iteration_s,
        bound_step_s=None,
        candidates=(
            Candidate(label=made.label, predicted_step_s=iteration_s),
            *other.evidence.candidates,
        ),
        checks=(),
    )
    return replace(made, evidence=evidence, reason=plan.reason + words)


def _numbers(most: int) -> list[int]:
    """Return numbers of steps to try, up to `most`.

    >>> _numbers(10)
    [2, 3, 4, 6, 8, 10]
    """
    found = {
        power * part // 2
        for power in (2**each for each in range(1, most.bit_length() + 1))
        for part in (2, 3)
    }
    return sorted({each for each in found if 2 <= each < most} | {most})
