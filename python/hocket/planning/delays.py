"""Choice of a schedule with merged or late gradients, where the promise allows one and the guard accepts it, with sentences on
it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from hocket.artefacts.learning import Check, Learning
from hocket.artefacts.local import Local, localized, named
from hocket.artefacts.needs import declared, needs_of
from hocket.artefacts.network import Network
from hocket.artefacts.plan import Bucket, Candidate, Due, Gathered, Plan, Refused, Schedule, Turn
from hocket.artefacts.plan_check import check
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise
from hocket.artefacts.schedule_check import divided
from hocket.errors import UsageError
from hocket.planning import admission, alone, efficiency
from hocket.planning.cost import predict_on
from hocket.planning.guard import ENLARGED, ROUNDS, Enlarged, Turns, accepted, compatible, described, used
from hocket.planning.reason import seconds
from hocket.planning.routes import reduces_means
from hocket.planning.schedules import Choice, by_need, front, merge_of, of_plans, papers, steady, turns
from hocket.planning.turn_memory import extra_bytes
from hocket.planning.walk import Rule, Walk
from hocket.planning.windows import starving, views
from hocket.settings import Guard

ALIKE = 1.02
"""Ratio up to which times for the same progress count as equal; among these, more updates win, then less delay."""

SAFER_MAX = 2
"""Limit on the schedules to which a training retreats before it continues synchronously."""


def scheduled(
    plan: Plan,
    graph: Network,
    profile: Profile,
    promise: Promise,
    rate: Rule | None = None,
    *,
    guard: Guard = "full",
    codecs: bool = True,
    simulated_s: alone.Simulated | None = None,
) -> Plan:
    """Return the plan with the fastest schedule that the guard accepts, if it is faster, and with a sentence on it; else the plan
    unchanged, or at gates if that is faster. The guard uses the profile's `learning`. `rate`: None for the rule that the profile's
    optimizer needs; `codecs`: policies may shorten what travels; `simulated_s`: by which steps alone are checked.

    Raises UsageError for a gradient that the profile lacks, and for the guard `paper` without the inputs of its ratio.
    """
    if not promise.turns:
        return plan
    if not all(reduces_means(bucket) for bucket in plan.buckets):
        return _scheduled_dense(plan, graph, profile, promise, rate=rate, guard=guard)
    together = _merged_or_late(plan, graph, profile, promise, rate=rate, guard=guard)
    return alone.instead_of(together, plan, graph, profile, promise, codecs=codecs, simulated_s=simulated_s)


def _merged_or_late(
    plan: Plan, graph: Network, profile: Profile, promise: Promise, *, rate: Rule | None, guard: Guard
) -> Plan:
    """Return the plan with the fastest schedule by which ranks step together."""
    if (promise.merge, promise.delay, promise.uncorrected) == (None, None, None):
        return _synchronous(plan, graph, profile)
    learning = profile.learning
    rule = rate or admission.rule_of(learning)
    if guard == "paper":
        found = _deft(plan, graph, profile, promise, rule)
    else:
        found = [*front(plan, graph, profile, promise, gates=False, rate=rule)]

    def cost_s(choice: Choice) -> float:
        """Seconds for as much progress as a synchronous iteration makes, as far as that is known."""
        return choice.iteration_s / efficiency.counted(_efficiency(choice, learning))

    synchronous = _synchronous(plan, graph, profile)
    synchronous_s = synchronous.predicted_step_s
    # Turns of one iteration that are applied in it are the plan's own behaviour, maybe at gates.
    gaining = [
        each
        for each in found
        if (merge_of(each.schedule) > 1 or each.schedule.delay_max)
        and divided(each.schedule, [bucket.variables for bucket in each.buckets]) is None
        and cost_s(each) <= alone.FASTER * synchronous_s
    ]
    if not gaining:
        return _saying(synchronous, " Merged or late gradients would gain nothing: none are used.")
    checked = [
        (each, admission.judged(each.schedule, learning, epsilon=promise.epsilon, guard=guard))
        for each in gaining
    ]
    passed = [each for each, checks in checked if accepted(checks)]
    best = _best(passed, cost_s)
    refused = _refused(checked, best)
    if best is None:
        evidence = msgspec.structs.replace(synchronous.evidence, refused=refused)
        return _saying(msgspec.structs.replace(synchronous, evidence=evidence), _said_of_none(refused))
    label = f"{plan.label}, {name(best.schedule)}"
    efficient = _efficiency(best, learning)
    own = next(checks for each, checks in checked if each is best)
    named = _named(msgspec.structs.replace(plan, evidence=synchronous.evidence), label, best.iteration_s)
    safer = _safer(best, passed, learning, cost_s)
    made = msgspec.structs.replace(
        named,
        buckets=best.buckets,
        schedule=best.schedule,
        safer=safer,
        batch=profile.batch,
        accumulation=profile.accumulation,
        evidence=msgspec.structs.replace(named.evidence, checks=own, refused=refused, efficiency=efficient),
        reason=synchronous.reason
        + _said(best, synchronous_s, efficient)
        + _said_of_parts(plan.buckets, best.buckets)
        + f" That takes {extra_bytes(best.buckets, (best.schedule, *safer), learning) / 1e6:.1f} MB more memory on each rank."
        + admission.said(own, best.schedule, learning)
        + _said_of_refused(refused),
    )
    return msgspec.structs.replace(made, promise=declared(needs_of(made)))


def _scheduled_dense(
    plan: Plan, graph: Network, profile: Profile, promise: Promise, *, rate: Rule | None, guard: Guard
) -> Plan:
    """Schedule a plan with rows: they differ between iterations and are not merged, but whole tables may gain more by merging."""
    dense = _dense(plan, graph, profile)
    if dense is not None:
        made = scheduled(dense, graph, profile, promise, rate, guard=guard)
        if made.schedule.turns and made.predicted_step_s <= alone.FASTER * plan.predicted_step_s:
            return made
    return _saying(
        plan,
        " Gradients are neither merged nor late where not all of them are reduced to a mean for all ranks.",
    )


def _dense(plan: Plan, graph: Network, profile: Profile) -> Plan | None:
    """Return the plan with whole tables instead of rows, on the route of its largest other bucket. None if there is no such bucket,
    if a table's gradient is sparse, or if a bucket is not reduced to a mean for other reasons."""
    reduced = [bucket for bucket in plan.buckets if reduces_means(bucket)]
    others = [bucket for bucket in plan.buckets if not reduces_means(bucket)]
    sparse = {each.name for each in profile.gradients if each.sparse}
    if not reduced or not all(
        isinstance(each.route, Gathered) and sparse.isdisjoint(each.variables) for each in others
    ):
        return None
    largest = max(reduced, key=lambda bucket: bucket.elements)
    buckets = tuple(
        bucket
        if reduces_means(bucket)
        else msgspec.structs.replace(
            largest,
            parts=bucket.parts,
            elements=bucket.elements,
            dtype=bucket.dtype,
            priority=bucket.priority,
        )
        for bucket in plan.buckets
    )
    step_s = predict_on(buckets, graph, profile, workers=plan.workers).step_s
    whole = msgspec.structs.replace(plan, buckets=buckets)
    words = f" With whole tables instead of rows, whose gradients cannot be merged, a step is predicted to take {seconds(step_s)}."
    return _saying(_named(whole, f"{plan.label}, rows as whole tables", step_s), words)


def _synchronous(plan: Plan, graph: Network, profile: Profile) -> Plan:
    """Return the faster plan: behind a barrier, or at gates with the buckets in the order in which forward needs them.

    Both make the same updates, so merged or late gradients must be faster than both.
    """
    # Without the times at which layers run, nothing is known about gates.
    if plan.schedule.overlap == "gates" or not any(each.needed_s for each in profile.gradients):
        return plan
    gated = msgspec.structs.replace(
        plan, buckets=by_need(plan.buckets, profile), schedule=Schedule(overlap="gates")
    )
    iteration_s = steady(gated, graph, profile).iteration_s
    if iteration_s > alone.FASTER * plan.predicted_step_s:
        return plan
    words = (
        f" At gates, where each layer's forward waits for its own gradients alone, an iteration is predicted to take "
        f"{seconds(iteration_s)} instead of {seconds(plan.predicted_step_s)}."
    )
    return _saying(_named(gated, f"{plan.label}, at gates", iteration_s), words)


def imposed(plan: Plan, promise: Promise, rule: Rule) -> Plan:
    """Return the plan with turns of as many iterations, and as late, as the promise allows, even if that is slower; or with as many
    steps alone.

    Raises ArtefactError if more turns would be in flight at a time than two slots can hold.
    """
    plan = msgspec.structs.replace(plan, evidence=msgspec.structs.replace(plan.evidence, efficiency=None))
    merged, late = promise.merge or 1, promise.delay or promise.uncorrected or 0
    if (promise.local or 1) > 1:
        made = localized(plan, Local(every=promise.local or 1, late=promise.delay or 0))
        check(made)
        return made
    turn = Turn(first=0, last=merged - 1, due=Due(iteration=merged - 1 + late))
    schedule = Schedule(
        period=merged,
        turns=((turn,),) * len(plan.buckets),
        rate=rule if merged > 1 or late else "one",
        steps="own first" if promise.delay is not None and late <= promise.delay else "one",
        delay_max=late,
    )
    made = msgspec.structs.replace(plan, schedule=schedule, label=f"{plan.label}, {name(schedule)}")
    made = msgspec.structs.replace(made, promise=declared(needs_of(made)))
    check(made)
    return made


def _named(plan: Plan, label: str, step_s: float) -> Plan:
    """Return the plan under a new label, as a candidate before those it was made from."""
    evidence = msgspec.structs.replace(
        plan.evidence,
        predicted_step_s=step_s,
        bound_step_s=None,
        candidates=(Candidate(label=label, predicted_step_s=step_s), *plan.evidence.candidates),
    )
    return msgspec.structs.replace(plan, evidence=evidence, label=label)


def _saying(plan: Plan, words: str) -> Plan:
    return msgspec.structs.replace(plan, reason=plan.reason + words)


def _best(choices: Sequence[Choice], cost_s: Callable[[Choice], float]) -> Choice | None:
    if not choices:
        return None
    shortest_s = min(map(cost_s, choices))
    alike = [each for each in choices if cost_s(each) <= ALIKE * shortest_s]
    return max(alike, key=lambda each: (round(each.updates_per_iteration, 6), -each.schedule.delay_max))


def _deft(plan: Plan, graph: Network, profile: Profile, promise: Promise, rule: Rule) -> list[Choice]:
    """DeFT's schedules, each of buckets cut by its partition rule, with windows that are enlarged until the ratio is kept; empty if
    no round keeps it. Raises UsageError if a bucket fits no window, however it is cut."""
    walk = admission.walk_of(profile.learning)
    if walk is None:
        raise UsageError(
            "the guard `paper` is a ratio of losses, and the profile lacks an optimizer of SGD's kind, its noise or a loss\n"
            "hint: `hocket profile` on two ranks or more of a script that calls hk.log(model, loss=…), or --guard full"
        )
    found = []
    fits = False
    for apart in views(plan, graph):
        plans, enlarged = _enlarged(plan, graph, profile, walk, rule, epsilon=promise.epsilon, apart=apart)
        fits |= bool(plans)
        if enlarged is not None:
            found.append(plans[enlarged.capacity_factor])
    if not fits:
        raise UsageError(starving(plan, graph, profile, capacity_factor=ENLARGED ** (ROUNDS - 1)))
    return of_plans(found, graph, profile, promise)


def _enlarged(
    plan: Plan, graph: Network, profile: Profile, walk: Walk, rule: Rule, *, epsilon: float, apart: bool
) -> tuple[dict[float, Plan], Enlarged | None]:
    """DeFT's plans by the factor of their windows, and the first one that keeps the ratio. `apart`: as for `papers`."""
    plans: dict[float, Plan] = {}

    def solved(factor: float) -> Turns | None:
        made = papers(plan, graph, profile, rate=rule, apart=apart, capacity_factor=factor)
        if made is None:
            return None
        plans[factor] = made
        return turns(made.schedule, 0)

    return plans, compatible(solved, walk, rule, epsilon)


def _safer(
    best: Choice, passed: Sequence[Choice], learning: Learning | None, cost_s: Callable[[Choice], float]
) -> tuple[Schedule, ...]:
    """Schedules of the same buckets to retreat to, each with at most half the risk (lost part of the stable range) of the one
    before."""
    alike = [each for each in passed if each.buckets == best.buckets]
    found: list[Schedule] = []
    least = admission.risk_of(best.schedule, learning)
    while len(found) < SAFER_MAX:
        following = _best(
            [each for each in alike if admission.risk_of(each.schedule, learning) <= least / 2], cost_s
        )
        if following is None:
            break
        found.append(following.schedule)
        least = admission.risk_of(following.schedule, learning)
    return tuple(found)


def _refused(checked: Sequence[tuple[Choice, tuple[Check, ...]]], best: Choice | None) -> tuple[Refused, ...]:
    """Refused schedules that would have been faster, the fastest first."""
    return tuple(
        Refused(label=name(each.schedule), predicted_step_s=each.iteration_s, checks=checks)
        for each, checks in sorted(checked, key=lambda pair: pair[0].iteration_s)
        if not accepted(checks) and (best is None or each.iteration_s < best.iteration_s)
    )


def name(schedule: Schedule) -> str:
    """Describe the schedule in a few words; empty for a synchronous one."""
    if schedule.outer is not None:
        return named(schedule)
    words = []
    if (merged := merge_of(schedule)) > 1:
        words.append(f"merged up to {merged}")
    if schedule.delay_max:
        words.append(f"late by up to {schedule.delay_max}")
    return " and ".join(words) + (" with own gradients first" if schedule.steps == "own first" else "")


def _said(choice: Choice, synchronous_s: float, efficient: float | None) -> str:
    schedule = choice.schedule
    late = f"applied up to {schedule.delay_max} late" if schedule.delay_max else "applied in time"
    if schedule.steps == "own first":
        late += ", while each rank goes on with its own"
    progress = (
        f": {efficiency.UNKNOWN}"
        if efficient is None
        else f", and to make {efficient:.2f} of a synchronous one's progress"
    )
    return (
        f" With gradients {late}, and {choice.updates_per_iteration:.2f} updates per iteration, an iteration is predicted to take "
        f"{seconds(choice.iteration_s)} instead of {seconds(synchronous_s)}{progress}."
    )


def _said_of_parts(before: Sequence[Bucket], buckets: Sequence[Bucket]) -> str:
    """Say what DeFT's partition rule and its links have changed."""
    words = ""
    if len(buckets) > len(before):
        words += (
            f" By DeFT's partition rule, {len(buckets)} buckets travel in place of {len(before)}, so that each fits a window of "
            "computation."
        )
    if [each.cards for each in buckets if each.cards] and not all(each.cards for each in before):
        words += " By DeFT's knapsacks, one for each card, no bucket is striped over cards."
    return words


def _efficiency(choice: Choice, learning: Learning | None) -> float | None:
    return efficiency.of_schedule(choice.schedule, [bucket.elements for bucket in choice.buckets], learning)


def _said_of_refused(refused: Sequence[Refused]) -> str:
    if not refused:
        return ""
    first = refused[0]
    others = "" if len(refused) == 1 else f", and {len(refused) - 1} more that would be faster"
    return f" Refused by the guard: {first.label} ({_why(first)}){others}."


def _said_of_none(refused: Sequence[Refused]) -> str:
    first = refused[0]
    return (
        " The guard lets no schedule pass that would gain anything, so gradients are neither merged nor late: "
        f"{first.label} would take {seconds(first.predicted_step_s)} ({_why(first)})."
    )


def _why(refused: Refused) -> str:
    return described(max((check for check in refused.checks if check.passed is False), key=used))
