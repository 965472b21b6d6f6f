"""Quality and speed of learning with merged and late gradients: the final loss after as many samples, and time to a loss.

Durations of iterations are measurements on the emulated star of the row `speed`; schedules are those of its contenders. Learning is
computed in one process (`study.py`), with the same parameters as on ranks. All contenders learn with the same seeds, so that losses
are compared in pairs: at a contender's own best learning rate, and at the synchronous one's best, as if a script changed nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from statistics import fmean
from typing import NamedTuple

import msgspec

from benches.delays import cases, speed
from benches.delays.contenders import PROMISES
from benches.delays.contest import Planned
from benches.delays.kept import NOTHING, Kept
from benches.delays.speed import Contest, Result
from benches.delays.study import KINDS, SYNCHRONOUS, TASKS, Curves, Study, Way, upper_bound
from benches.row import Row
from hocket.artefacts.local import Local
from hocket.artefacts.plan import Due, Plan, Schedule, Turn
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise

WORSE = 0.03
"""Loss by which the upper bound of the final loss may be above that of synchronous training."""

COVERAGE = {1.4: 0.8, 2.0: 0.7}
"""Targets by coverage rate: time to the loss, over that of the best synchronous contender."""

UNCORRECTED = {
    "late by 1, uncorrected": Promise("uncorrected", delay=0, uncorrected=1),
    "merged 2, late by 1, uncorrected": Promise("uncorrected", merge=2, delay=0, uncorrected=1),
}


class Clock(NamedTuple):
    """Seconds of the best synchronous contender's iteration, and the target of the time to a loss, over that contender's."""

    iteration_s: float
    target: float


class Timed(NamedTuple):
    """A way to train. `iteration_s`: seconds of an iteration, if they were measured."""

    way: Way
    iteration_s: float | None = None


def learning(kept: Kept = NOTHING) -> Iterator[Row]:
    """Rows of the fastest contender of each kind; what is kept is not computed again. Raises PeerError if there are no network
    namespaces."""
    profile = cases.transformer()
    contests = {coverage: _ways(profile, coverage, kept) for coverage in COVERAGE}
    for study in _studies(kept):
        for coverage, (plain_s, ways) in contests.items():
            where = f"{study.title}, coverage {coverage:g}"
            yield from rows("learning", where, study, ways, Clock(plain_s, COVERAGE[coverage]))


def lateness(kept: Kept = NOTHING) -> Iterator[Row]:
    """Rows of hand-made schedules, without a network: what lateness and merging cost, and what own gradients save."""
    for study in _studies(kept):
        yield from rows("lateness", study.title, study, HAND_MADE)


def alone(kept: Kept = NOTHING) -> Iterator[Row]:
    """Rows of steps alone, without a network: what they cost in learning after as many iterations."""
    for study in _studies(kept):
        yield from rows("alone", study.title, study, ALONE)


def _studies(kept: Kept) -> Iterator[Study]:
    for make, iterations in TASKS:
        task = make()
        yield from (Study(task, kind, iterations, kept) for kind in KINDS)


def rows(
    name: str, where: str, study: Study, ways: Mapping[str, Timed], clock: Clock | None = None
) -> Iterator[Row]:
    """Each way against synchronous training. There are no targets for what is only there to compare with."""
    base = study.tuned(SYNCHRONOUS, study.kind.rate)
    for title, (way, iteration_s) in ways.items():
        judged = not title.endswith("uncorrected")
        tuned, untuned = study.tuned(way, base.rate), study.at(way, base.rate)
        for rated, found in ((f"at rate {tuned.rate:g}", tuned), ("untuned", untuned)):
            what = f"{where}: {title}, {rated}"
            loss = _loss(name, what, found, base)
            time = (
                []
                if iteration_s is None or clock is None
                else [_time(name, what, (iteration_s, found), (clock, base))]
            )
            for each in (loss, *time):
                yield each if judged else msgspec.structs.replace(each, target=None)


def _loss(name: str, what: str, found: Curves, base: Curves) -> Row:
    differences = [own - other for own, other in zip(found.last, base.last, strict=True)]
    return Row(
        name=name,
        what=f"{what}: final loss above the synchronous one at rate {base.rate:g}, upper 90 % bound of the mean, "
        f"{fmean(differences):+.4f}",
        value=upper_bound(differences),
        target=WORSE,
    )


def _time(name: str, what: str, own: tuple[float, Curves], base: tuple[Clock, Curves]) -> Row:
    (own_s, found), (clock, synchronous) = own, base
    loss = synchronous.target
    own_whole_s = own_s * found.iterations_to(loss)
    whole_s = clock.iteration_s * synchronous.iterations_to(loss)
    return Row(
        name=name,
        what=f"{what}: time to a loss of {loss:.4g}, over that of the best synchronous contender; iterations of "
        f"{own_s * 1e3:.0f} ms instead of {clock.iteration_s * 1e3:.0f}",
        value=own_whole_s / whole_s,
        target=clock.target,
    )


def _ways(profile: Profile, coverage: float, kept: Kept) -> tuple[float, dict[str, Timed]]:
    """Seconds of the best synchronous contender's iteration, and the fastest way of each kind, as measured."""
    promises = {**PROMISES, **UNCORRECTED}
    contest = kept.measured(
        f"coverage-{coverage:g}", Contest, lambda: speed.measured(profile, coverage, promises)
    )
    fastest: dict[str, Timed] = {}
    for each in sorted(contest.results, key=lambda each: each.measured_s):
        if each.contender.synchronous:
            continue
        plan = _plan(each)
        if (kind := kind_of(plan.schedule)) not in fastest:
            way = Way(plan.schedule, bucket_at(profile, plan))
            fastest[kind] = Timed(way, each.measured_s)
    return contest.best.measured_s, fastest


def _plan(result: Result) -> Plan:
    plans = [each.plan for each in result.contender.variants if isinstance(each, Planned)]
    return next(each for each in plans if each.label == result.variant)


def kind_of(schedule: Schedule) -> str:
    """Return what ranks do until means arrive."""
    if schedule.steps == "own first":
        return "own gradients first"
    return "late, uncorrected" if schedule.delay_max else "merged"


def bucket_at(profile: Profile, plan: Plan) -> Callable[[float], int]:
    """Make a function from a share of all elements, in the order of forward, to the bucket of the gradient there."""
    owner: dict[str, int] = {}
    for at, bucket in enumerate(plan.buckets):
        for name in bucket.variables:
            owner.setdefault(name, at)
    sizes = [math.prod(each.shape) for each in profile.gradients]
    ends = [end / sum(sizes) for end in itertools.accumulate(sizes)]

    def found(share: float) -> int:
        at = next((at for at, end in enumerate(ends) if share < end), len(ends) - 1)
        return owner[profile.gradients[at].name]

    return found


def schedule_of(merged: int, late: int, *, own_first: bool = False) -> Schedule:
    """Return the schedule of turns of so many iterations, the same for all parameters."""
    turn = Turn(first=0, last=merged - 1, due=Due(iteration=merged - 1 + late))
    return Schedule(
        period=merged, turns=((turn,),), delay_max=late, steps="own first" if own_first else "one"
    )


HAND_MADE = {
    "late by 1, own gradients first": Timed(Way(schedule_of(1, 1, own_first=True))),
    "merged 2, late by 1, own gradients first": Timed(Way(schedule_of(2, 1, own_first=True))),
    "merged 2, own gradients first": Timed(Way(schedule_of(2, 0, own_first=True))),
    "merged 2, one step": Timed(Way(schedule_of(2, 0))),
    "merged 2, a step for each iteration": Timed(Way(schedule_of(2, 0), each=True)),
    "late by 1, uncorrected": Timed(Way(schedule_of(1, 1))),
    "merged 2, late by 1, uncorrected": Timed(Way(schedule_of(2, 1))),
}

ALONE = {
    named: Timed(Way(local.schedule(1)))
    for named, local in {
        "alone for 10 steps": Local(every=10),
        "alone for 30 steps": Local(every=30),
        "alone for 30 steps, DiLoCo's outer optimizer": Local(every=30, rate=0.7, momentum=0.9),
        "alone for 30 steps, late by 10": Local(every=30, late=10),
    }.items()
}
