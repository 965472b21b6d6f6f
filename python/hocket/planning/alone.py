"""Choice of how seldom ranks that may step alone exchange how far they came: as often as their network lets them.

What ranks learn by steps alone is not known beforehand, but more of them are hardly better for learning. So the schedule has the
fewest with which exchanges take next to nothing of the time, or as many as the promise allows.
"""

from __future__ import annotations

from bisect import bisect_left

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

FRAGMENTS = 3
"""Number of divisions into fragments that are tried."""

FASTER = 0.97
"""Fraction of the other plan's time above which steps alone, and merged or late gradients, are not worth their effects."""


def instead_of(other: Plan, plan: Plan, graph: Network, profile: Profile, promise: Promise) -> Plan:
    """Return the plan with steps alone, if the promise allows them and they are faster than the `other` plan, and else that, with a
    sentence on it.

    Raises UsageError for a gradient that the profile lacks.
    """
    most = promise.local or 1
    if most < 2:
        return other
    tried = [
        _fewest(plan, graph, profile, Local(every=most, late=late, fragments=fragments))
        for late in [0, *_powers(promise.delay or 0)]
        # Parts of a model are under way for as long as all of it is, unless steps go on meanwhile.
        for fragments in [1, *_powers(len(plan.buckets))[1:]][: 1 + FRAGMENTS * (late > 0)]
        if late < most and fragments <= most
    ]
    enough = [each for each in tried if each[1] <= (1 + WAITS) * profile.step_s]
    if enough:
        local, iteration_s = min(enough, key=lambda each: (each[0].every, each[0].late, each[0].fragments))
    else:
        local, iteration_s = min(tried, key=lambda each: (each[1], each[0].late, each[0].fragments))
    if iteration_s > FASTER * other.predicted_step_s:
        words = (
            f" Steps alone would take {seconds(iteration_s)} each, which is not faster: ranks step together."
        )
        return replace(other, reason=other.reason + words)
    made = localized(plan, local)
    late = f", and go on for {local.late} while that is under way" if local.late else ""
    parts = f", in {local.fragments} parts one after the other" if local.fragments > 1 else ""
    words = (
        f" Ranks step alone and exchange how far they came once in {local.every} steps{parts}{late}: an iteration is predicted to "
        f"take {seconds(iteration_s)} instead of {seconds(other.predicted_step_s)}. How they learn by it is not known beforehand: "
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


def _fewest(plan: Plan, graph: Network, profile: Profile, most: Local) -> tuple[Local, float]:
    """Return the fewest steps alone, to those of `most`, with which exchanges take next to nothing of the time, and an iteration's
    seconds; `most` if they always take more."""

    def iteration_s(every: int) -> float:
        return steady(localized(plan, replace(most, every=every)), graph, profile).iteration_s

    numbers = [each for each in _numbers(most.every) if each > most.late and each >= most.fragments]
    enough_s = (1 + WAITS) * profile.step_s
    # With fewer exchanges, an iteration takes no longer.
    at = bisect_left(numbers[:-1], True, key=lambda every: iteration_s(every) <= enough_s)
    return replace(most, every=numbers[at]), iteration_s(numbers[at])


def _powers(most: int) -> list[int]:
    """Return powers of two up to `most`.

    >>> _powers(9)
    [1, 2, 4, 8]
    """
    return [1 << each for each in range(most.bit_length())]


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
