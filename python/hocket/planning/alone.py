"""Choice of how seldom ranks that may step alone exchange how far they came, and in which form: as often as their network lets
them.

What ranks learn by steps alone is not known beforehand, but more of them are hardly better for learning. So the schedule has the
fewest with which exchanges take next to nothing of the time, or as many as the promise allows. Where the promise lets policies
round what travels, that may be fewer. The choice says how much of a synchronous iteration's progress makes it worth while.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple

from msgspec.structs import replace

from hocket.artefacts.local import Local, localized
from hocket.artefacts.network import Network
from hocket.artefacts.plan import Candidate, Plan, Traced
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise
from hocket.planning import efficiency, traced
from hocket.planning.reason import seconds
from hocket.planning.schedules import steady
from hocket.policy.policy import Value

WAITS = 0.03
"""Share of an iteration's computation that exchanges may add to it."""

FRAGMENTS = 3
"""Number of divisions into fragments that are tried."""

FASTER = 0.97
"""Fraction of the other plan's time above which steps alone, and merged or late gradients, are not worth their effects."""

SIMULATED_MORE = 4
"""Larger numbers of steps alone that are simulated where fewer take longer than predicted, before the largest one."""

Simulated = Callable[[Plan], float]
"""Function that simulates a plan, and returns the mean seconds of an iteration."""


class Codec(NamedTuple):
    """Policy that shortens what travels, and keeps what it rounds for the next exchange.

    Attributes:
        route: the policy with its parameters. With two levels, it sums in racks first, and one rank of each exchanges codes.
        whole: all elements travel, so that more exchanges are worth more than the bits (Streaming DiLoCo, arXiv 2501.18512, lost
            nothing by 4).
    """

    route: Traced
    whole: bool = True

    @property
    def has_levels(self) -> bool:
        return self.route.parameters.get("levels") == 2


def _codec(policy: str, *, whole: bool = True, **parameters: Value) -> Codec:
    return Codec(Traced(policy=policy, parameters=parameters), whole)


CODECS = {
    "int8": _codec("int8"),
    "double_squeeze of racks": _codec("double_squeeze", levels=2),
    "double_squeeze": _codec("double_squeeze"),
    "int4 of racks": _codec("int4", levels=2),
    "int4": _codec("int4"),
    "double_squeeze of racks in 4 bits": _codec("double_squeeze", bits=4, levels=2),
    "double_squeeze in 4 bits": _codec("double_squeeze", bits=4),
    "top_k": _codec("top_k", whole=False),
    "sparse_int2 of racks": _codec("sparse_int2", whole=False, levels=2),
    "sparse_int2": _codec("sparse_int2", whole=False),
}
"""Codecs by what plans call them, those that round less first. All but `double_squeeze`, which rounds twice, gather codes: with 4
ranks, int8 carries a ring's bytes. Sums of racks are rounded less often than what each rank sends."""


def instead_of(
    other: Plan,
    plan: Plan,
    graph: Network,
    profile: Profile,
    promise: Promise,
    *,
    codecs: bool = True,
    simulated_s: Simulated | None = None,
) -> Plan:
    """Return the plan with steps alone, if the promise allows them and they may be faster than the `other` plan, and else that,
    with a sentence on it. `codecs`: policies may shorten what travels, as far as the promise goes; `simulated_s`: time of an
    iteration, by which choices are checked.

    Raises UsageError for a gradient that the profile lacks.
    """
    most = promise.local or 1
    if most < 2:
        return other

    def of(codec: str) -> Alone:
        found = _of_codec(codec, plan, graph, profile, promise)
        return found if simulated_s is None else _checked(found, plan, most, profile, simulated_s)

    best = of("")
    for codec in _codecs(plan, graph, promise) if codecs else ():
        if _is_better(found := of(codec), best, profile):
            best = found
    sizes = [bucket.elements for bucket in other.buckets]
    other_s = other.predicted_step_s / efficiency.counted(
        efficiency.of_schedule(other.schedule, sizes, profile.learning)
    )
    if best.iteration_s > FASTER * other_s:
        words = f" Steps alone would take {seconds(best.iteration_s)} each, which is not faster: ranks step together."
        return replace(other, reason=other.reason + words)
    made = localized(coded(plan, best.codec), best.local)
    evidence = replace(
        other.evidence,
        predicted_step_s=best.iteration_s,
        bound_step_s=None,
        candidates=(
            Candidate(label=made.label, predicted_step_s=best.iteration_s),
            *other.evidence.candidates,
        ),
        checks=(),
        efficiency=None,
    )
    words = _said(best, other.predicted_step_s) + _said_of_progress(best.iteration_s / other_s, profile)
    return replace(made, evidence=evidence, reason=plan.reason + words)


class Alone(NamedTuple):
    """Steps alone with the codec of this name, none if it is empty, and the seconds of an iteration."""

    codec: str
    local: Local
    iteration_s: float


def _of_codec(codec: str, plan: Plan, graph: Network, profile: Profile, promise: Promise) -> Alone:
    """Return the fewest steps alone with which exchanges take next to nothing of the time, else the fastest."""
    short, most = coded(plan, codec), promise.local or 1
    tried = [
        Alone(
            codec,
            *_fewest(short, graph, profile, Local(every=most, late=late, fragments=fragments, grows=True)),
        )
        for late in [0, *_powers(promise.delay or 0)]
        # Parts of a model are under way for as long as all of it is, unless steps go on meanwhile.
        for fragments in [1, *_powers(len(plan.buckets))[1:]][: 1 + FRAGMENTS * (late > 0)]
        if late < most and fragments <= most
    ]
    if enough := [each for each in tried if _is_enough(each, profile)]:
        return min(enough, key=lambda each: (each.local.every, each.local.late, each.local.fragments))
    return min(tried, key=lambda each: (each.iteration_s, each.local.late, each.local.fragments))


def _checked(found: Alone, plan: Plan, most: int, profile: Profile, simulated_s: Simulated) -> Alone:
    """Return a choice with its simulated time, and with more steps alone, to `most`, if exchanges take longer than predicted."""
    coded_plan = coded(plan, found.codec)
    numbers = [each for each in _numbers(most) if each > found.local.every]
    for every in [found.local.every, *numbers[:SIMULATED_MORE], *numbers[SIMULATED_MORE:][-1:]]:
        local = replace(found.local, every=every)
        found = Alone(found.codec, local, simulated_s(localized(coded_plan, local)))
        if _is_enough(found, profile):
            break
    return found


def _is_enough(each: Alone, profile: Profile) -> bool:
    return each.iteration_s <= (1 + WAITS) * profile.step_s


def _is_better(found: Alone, best: Alone, profile: Profile) -> bool:
    """Return whether a codec that rounds more is worth it: without it exchanges take too long; or it has as many bits for each
    element as learning needs, and halves the steps alone."""
    if not _is_enough(best, profile):
        return _is_enough(found, profile) or found.iteration_s <= FASTER * best.iteration_s
    halves = CODECS[found.codec].whole and 2 * found.local.every <= best.local.every
    return _is_enough(found, profile) and halves


def _codecs(plan: Plan, graph: Network, promise: Promise) -> Iterator[str]:
    """Yield the names of codecs that may shorten what travels, those that round less first."""
    if promise.loss == "any" and all(bucket.dtype == "f32" for bucket in plan.buckets):
        topology = traced.topology_of(graph)
        racks = len(set(topology.racks)) if len(set(topology.racks)) > 1 else len(set(topology.hosts))
        yield from (
            name for name, each in CODECS.items() if not each.has_levels or 1 < racks < topology.world
        )


def coded(plan: Plan, codec: str) -> Plan:
    """Return the plan with a codec for all buckets; as it is for none."""
    if not codec:
        return plan
    buckets = tuple(
        replace(each, route=CODECS[codec].route, codec="none", codec_links=(), cards=None)
        for each in plan.buckets
    )
    return replace(plan, buckets=buckets, label=f"{plan.label}, {codec}")


def _said(best: Alone, other_s: float) -> str:
    local = best.local
    late = f", and go on for {local.late} while that is under way" if local.late else ""
    parts = f", in {local.fragments} parts one after the other" if local.fragments > 1 else ""
    codec = f", by {best.codec}" if best.codec else ""
    return (
        f" Ranks step alone and exchange how far they came once in {local.every} steps{parts}{codec}{late}: an iteration is "
        f"predicted to take {seconds(best.iteration_s)} instead of {seconds(other_s)}: {efficiency.UNKNOWN}."
    )


def _said_of_progress(worth: float, profile: Profile) -> str:
    """Say how much progress an iteration has to make. `worth`: of a synchronous one's, where both are as good."""
    learning = profile.learning
    pays = f" It pays where an iteration makes more than {worth:.2f} of a synchronous one's progress"
    if learning is None or learning.noise_scale is None:
        known = ", which is not known beforehand"
    else:
        least = efficiency.of_alone(learning.ranks, learning.noise_scale)
        known = f"; by the noise of gradients it makes {least:.2f} at least, what a rank learns by itself"
        if least > worth:
            return f"{pays}{known}, so it pays in any case, as long as ranks do not drift apart."
    return f"{pays}{known}: the guard judges each exchange, and `hocket check` compares both."


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
