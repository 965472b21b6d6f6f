"""Iterations per second with merged and late gradients, against the best of all synchronous contenders, and against DDP alone.

All contenders train in turns in one job. Computation is a wait, so that four ranks do not compete for cores; executors, Gloo and
links are real.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from statistics import fmean, median
from typing import NamedTuple

from benches.delays import cases
from benches.delays.contenders import PROMISES, contenders, delayed, field, simulated_s
from benches.delays.contest import Contender, Course, Measured, Planned
from benches.delays.turns import in_turns
from benches.row import Row
from hocket.artefacts.plan import Plan
from hocket.artefacts.profile import Profile
from hocket.artefacts.promise import Promise
from hocket.planning.for_job import updates_per_step
from hocket.tools.report.quantity import TIMES

SPEED = {1.0: (1.03, 1.3), 1.4: (1.25, 1.6), 2.0: (1.7, 2.1)}
"""Target ratios by coverage rate: to the best synchronous contender, and to DDP."""

IMBALANCED_COVERAGE, IMBALANCED = 1.9, (1.6, 1.9)


class Result(NamedTuple):
    """Result of a contender: the chosen variant, updates per iteration, predicted and measured seconds of an iteration."""

    contender: Contender
    variant: str
    updates: float
    predicted_s: float | None
    measured_s: float


class Contest(NamedTuple):
    """Results of all contenders on one network."""

    coverage: float
    results: tuple[Result, ...]

    @property
    def best(self) -> Result:
        return self._fastest(lambda each: each.synchronous)

    @property
    def ddp(self) -> Result:
        """The faster of DDP and DDP with its f16 hook."""
        return self._fastest(lambda each: each.name.startswith("DDP"))

    @property
    def delayed(self) -> Result:
        """The fastest result with merged or late gradients; Hocket's synchronous one if the planner refuses all others."""
        if all(each.contender.synchronous for each in self.results):
            return self._fastest(lambda each: each.name.startswith("Hocket"))
        return self._fastest(lambda each: not each.synchronous)

    def _fastest(self, wanted: Callable[[Contender], bool]) -> Result:
        return min(
            (each for each in self.results if wanted(each.contender)), key=lambda each: each.measured_s
        )


def measured(profile: Profile, coverage: float, promises: Mapping[str, Promise] = PROMISES) -> Contest:
    """Measure all contenders. Raises PeerError if there are no network namespaces."""
    cluster = cases.star(profile, coverage)
    tuned = contenders(field(cluster, profile, cases.WORLD), dict(promises))
    found = in_turns(cluster, profile, tuned, Course())
    return Contest(coverage, tuple(_result(*each) for each in zip(tuned, found, strict=True)))


def speed() -> Iterator[Row]:
    """Rows of a transformer, at three coverage rates."""
    for coverage, targets in SPEED.items():
        yield from rows("speed", measured(cases.transformer(), coverage), *targets)


def imbalanced() -> Iterator[Row]:
    """Rows of a model with most parameters in one layer: its turns may differ from those of others."""
    profile = cases.imbalanced()
    promise = Promise("delayed", merge=4, delay=1)
    contest = measured(profile, IMBALANCED_COVERAGE, {**PROMISES, "merged 4, late by 1": promise})
    yield from rows("imbalanced", contest, *IMBALANCED)
    yield from _progress(profile, promise)


def _progress(profile: Profile, promise: Promise) -> Iterator[Row]:
    """Own turns for each bucket, against the same turns for all: the shortest simulated iteration of each kind, and a parameter's
    updates per second with it."""
    of = field(cases.star(profile, IMBALANCED_COVERAGE), profile, cases.WORLD)
    plans = list(delayed(of, promise))
    for kind, together in (
        ("each bucket has its own turns", False),
        ("all buckets have the same turns", True),
    ):
        own = [
            (simulated_s(plan, of), at) for at, plan in enumerate(plans) if plan.schedule.together == together
        ]
        for iteration_s, at in sorted(own)[:1]:
            what = f"{kind} ({plans[at].label}), simulated: "
            yield Row(name="imbalanced", what=what + "iterations a second", value=1 / iteration_s)
            updates = _updates_of_a_parameter(plans[at]) / iteration_s
            yield Row(name="imbalanced", what=what + "updates of a parameter a second", value=updates)


def _updates_of_a_parameter(plan: Plan) -> float:
    """Updates per iteration, the mean over parameters."""
    return fmean(updates_per_step(plan), weights=[bucket.elements for bucket in plan.buckets])


def rows(name: str, contest: Contest, over_best: float | None, over_ddp: float | None) -> Iterator[Row]:
    """Iteration of each contender, and the gain of the fastest one with merged or late gradients."""
    where = f"coverage {contest.coverage:g}"
    for each in contest.results:
        predicted = "" if each.predicted_s is None else f", predicted {each.predicted_s * 1e3:.0f} ms"
        updates = "" if each.contender.synchronous else f", {each.updates:.2f} updates an iteration"
        what = f"{where}: {each.contender.name} ({each.variant}{updates}{predicted}): iteration"
        yield Row(name=name, what=what, value=each.measured_s * 1e3, unit="ms")
    delayed_s = contest.delayed.measured_s
    for against, target in ((contest.best, over_best), (contest.ddp, over_ddp)):
        what = f"{where}: {contest.delayed.contender.name} over {against.contender.name}"
        value = against.measured_s / delayed_s
        yield Row(name=name, what=what, value=value, target=target, least=True, unit=TIMES)


def _result(contender: Contender, found: Measured) -> Result:
    variant = contender.variants[found.variant]
    updates, predicted_s = 1.0, None
    if isinstance(variant, Planned):
        predicted_s = variant.plan.predicted_step_s
        updates = fmean(updates_per_step(variant.plan))
    return Result(contender, variant.title, updates, predicted_s, median(found.iterations_s))
