"""Quality and speed of learning with merged and late gradients: to as many samples, and to a target on the clock.

Durations of iterations are measurements on the emulated star of the row `speed`; schedules are the fastest contender's there.
Learning is computed in one process (`learner.py`), with the same parameters as on ranks. The learning rate of each contender is the
best of the same grid.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

import msgspec
import torch

from benches.delays import cases, speed, tasks
from benches.delays.contest import Planned
from benches.delays.learner import Learner, plan_of_schedules
from benches.delays.tasks import Task
from benches.row import Row
from hocket.artefacts.plan import Plan, Schedule
from hocket.artefacts.profile import Profile

COVERAGE = {1.4: 0.9, 2.0: 0.75}
"""Targets by coverage rate: time to the loss, over that of the best synchronous contender."""

DEVIATIONS = 1.0
"""Deviations over seeds by which the mean loss after as many samples may differ."""

SEEDS = (1, 2, 3)
TUNED_BY = 0
"""Seed for choosing the learning rate."""

EVALUATED = 10
"""Iterations between evaluations on samples that are not used for training."""

TARGET_AT = 0.7
"""Fraction of the iterations at which the synchronous loss is the target."""

Optimizer = Callable[[Sequence[torch.nn.Parameter], float], torch.optim.Optimizer]


@dataclass(frozen=True)
class Kind:
    """An optimizer with its grid of learning rates, and the rule for rates of merged updates."""

    name: str
    make: Optimizer
    rates: tuple[float, ...]
    rule: str


KINDS = (
    Kind(
        "SGD with momentum",
        lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
        (0.003, 0.006, 0.0125, 0.025, 0.05, 0.1),
        "linear",
    ),
    Kind(
        "AdamW",
        lambda parameters, rate: torch.optim.AdamW(parameters, lr=rate),
        (0.0005, 0.001, 0.002, 0.004, 0.008),
        "sqrt",
    ),
)

TASKS: tuple[tuple[Callable[[], Task], int], ...] = (
    (tasks.digits_cnn, 300),
    (tasks.digits_resnet, 300),
    (tasks.bytes_transformer, 400),
)
"""Tasks, and the iterations of each."""


@dataclass(frozen=True)
class Way:
    """A way to train: a schedule, the bucket of each share of the parameters, and seconds of an iteration."""

    schedule: Schedule
    bucket_at: Callable[[float], int]
    iteration_s: float


@dataclass(frozen=True)
class Curves:
    """Losses at each evaluation, by seed, with their learning rate."""

    rate: float
    losses: tuple[tuple[float, ...], ...]

    @property
    def mean(self) -> list[float]:
        return [fmean(each) for each in zip(*self.losses, strict=True)]

    @property
    def last(self) -> list[float]:
        """Means of the last three evaluations, by seed."""
        return [fmean(each[-3:]) for each in self.losses]


def learning() -> Iterator[Row]:
    """Rows of learning. Raises PeerError if there are no network namespaces."""
    profile = cases.transformer()
    ways = {coverage: _ways(profile, coverage) for coverage in COVERAGE}
    for make, iterations in TASKS:
        task = make()
        for kind in KINDS:
            run = functools.partial(_tuned, task, kind, iterations)
            synchronous = run(ways[min(COVERAGE)][0])
            for coverage, (plain, delayed) in ways.items():
                found = run(delayed)
                where = f"{task.name}, {kind.name}, coverage {coverage:g}"
                yield from _rows(where, (plain, synchronous), (delayed, found), COVERAGE[coverage])


def _ways(profile: Profile, coverage: float) -> tuple[Way, Way]:
    """The best synchronous contender's way, and that of the fastest one with merged or late gradients, as measured."""
    contest = speed.measured(profile, coverage)
    best, fastest = contest.best, contest.delayed
    plans = [each.plan for each in fastest.contender.variants if isinstance(each, Planned)]
    plan = next(each for each in plans if each.label == fastest.variant)
    return (
        Way(Schedule(), lambda _: 0, best.measured_s),
        Way(plan.schedule, bucket_at(profile, plan), fastest.measured_s),
    )


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


def grouped(model: torch.nn.Module, way: Way) -> list[list[torch.nn.Parameter]]:
    """Group the model's parameters by the bucket that has their share of all elements."""
    groups: list[list[torch.nn.Parameter]] = [[] for _ in way.schedule.turns or (None,)]
    parameters = list(model.parameters())
    whole, begin = sum(each.numel() for each in parameters), 0
    for each in parameters:
        groups[way.bucket_at((begin + each.numel() / 2) / whole)].append(each)
        begin += each.numel()
    return groups


def _tuned(task: Task, kind: Kind, iterations: int, way: Way) -> Curves:
    """Train with all seeds at the rate that is best with another seed."""
    schedule = way.schedule
    if any(turn.last > turn.first for turns in schedule.turns for turn in turns):
        way = Way(msgspec.structs.replace(schedule, rate=kind.rule), way.bucket_at, way.iteration_s)

    def last(rate: float) -> float:
        return fmean(_curve(task, kind, rate, iterations, seed=TUNED_BY, way=way)[-3:])

    rate = min(kind.rates, key=last)
    curves = (_curve(task, kind, rate, iterations, seed=seed, way=way) for seed in SEEDS)
    return Curves(rate, tuple(tuple(each) for each in curves))


def _curve(task: Task, kind: Kind, rate: float, iterations: int, *, seed: int, way: Way) -> list[float]:
    model = task.started(seed)
    optimizer = kind.make(list(model.parameters()), rate)
    learner = Learner(optimizer, grouped(model, way), plan_of_schedules(way.schedule))
    found = []
    for at, loss_of in enumerate(itertools.islice(task.batches(seed), iterations), 1):
        loss = loss_of(model)
        learner.learn(loss)
        learner.log(float(loss.detach()))
        if at % EVALUATED == 0:
            seen = task.loss(model)
            found.append(seen if math.isfinite(seen) else math.inf)
    return found


def _rows(where: str, base: tuple[Way, Curves], other: tuple[Way, Curves], most: float) -> Iterator[Row]:
    (plain, synchronous), (delayed, found) = base, other
    worse = fmean(found.last) - fmean(synchronous.last)
    spread = math.sqrt((stdev(found.last) ** 2 + stdev(synchronous.last) ** 2) / 2)
    yield Row(
        name="learning",
        what=f"{where}: loss after as many samples, {fmean(found.last):.4g} at rate {found.rate:g} above "
        f"{fmean(synchronous.last):.4g} at {synchronous.rate:g}",
        value=worse / spread if spread else math.copysign(math.inf, worse),
        target=DEVIATIONS,
        unit="deviations",
    )
    target = synchronous.mean[int(TARGET_AT * len(synchronous.mean)) - 1]
    times_s = [
        _reached(curves.mean, target) * way.iteration_s
        for way, curves in ((delayed, found), (plain, synchronous))
    ]
    iterations = f"iterations of {delayed.iteration_s * 1e3:.0f} ms instead of {plain.iteration_s * 1e3:.0f}"
    yield Row(
        name="learning",
        what=f"{where}: time to a loss of {target:.4g}, over that of the best synchronous contender; {iterations}",
        value=times_s[0] / times_s[1],
        target=most,
    )


def _reached(losses: Sequence[float], target: float) -> float:
    """Iterations until the target; infinite if it is not reached."""
    return next((EVALUATED * at for at, loss in enumerate(losses, 1) if loss <= target), math.inf)
