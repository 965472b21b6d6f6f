"""Learning curves: what a model loses with a schedule, computed in one process, at the best learning rate of each schedule.

Rates are a factor of two apart. From the first one, the search goes to the better neighbour until both are worse, with a seed that
counts for nothing else: so the best rate is never at the edge of a grid.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev

import msgspec
import torch

from benches.delays import tasks
from benches.delays.alone import Apart
from benches.delays.kept import NOTHING, Kept
from benches.delays.learner import Learner, plan_of_schedules
from benches.delays.tasks import WORKERS, Task
from benches.delays.working import Copy
from hocket.artefacts.plan import Schedule
from hocket.settings import Settings

SEEDS = (1, 2, 3, 4, 5)
TUNED_BY = 0
"""Seed for choosing the learning rate."""

STUDENT_90 = 1.533
"""Quantile of Student's t with a degree of freedom less than there are seeds: nine of ten mean differences are below the bound."""

EVALUATED = 10
"""Iterations between evaluations on samples that are not used for training."""

LAST = 3
"""Last evaluations whose mean is the final loss."""

TARGET_AT = 0.7
"""Fraction of the iterations at which the synchronous loss is the target."""

UNWATCHED = Settings(sentinel=False)
"""A schedule begins with the first iteration, and never ends: its own learning counts."""


@dataclass(frozen=True)
class Kind:
    """An optimizer with the rate from which a search begins, and the rule for rates of merged updates."""

    name: str
    make: Callable[[Sequence[torch.nn.Parameter], float], torch.optim.Optimizer]
    rate: float
    rule: str


KINDS = (
    Kind(
        "SGD with momentum",
        lambda parameters, rate: torch.optim.SGD(parameters, lr=rate, momentum=0.9),
        0.05,
        "linear",
    ),
    Kind("AdamW", lambda parameters, rate: torch.optim.AdamW(parameters, lr=rate), 0.002, "sqrt"),
)

TASKS: tuple[tuple[Callable[[], Task], int], ...] = (
    (tasks.digits_cnn, 300),
    (tasks.digits_resnet, 300),
    (tasks.bytes_transformer, 400),
)
"""Tasks, and the iterations of each."""


def first_bucket(_share: float) -> int:
    return 0


@dataclass(frozen=True)
class Way:
    """A way to train: a schedule, and the bucket of each share of the parameters. `each`: the optimizer steps with a mean as often
    as it has iterations."""

    schedule: Schedule
    bucket_at: Callable[[float], int] = first_bucket
    each: bool = False


SYNCHRONOUS = Way(Schedule())


@dataclass(frozen=True)
class Curves:
    """Losses at each evaluation, by seed, with their learning rate."""

    rate: float
    losses: tuple[tuple[float, ...], ...]

    @property
    def last(self) -> list[float]:
        """Final loss, by seed."""
        return [final(each) for each in self.losses]

    def iterations_to(self, target: float) -> float:
        """Return the iterations after which the mean of all seeds is at the target; infinite if it never is."""
        means = (fmean(each) for each in zip(*self.losses, strict=True))
        return next((EVALUATED * at for at, loss in enumerate(means, 1) if loss <= target), math.inf)

    @property
    def target(self) -> float:
        """Loss to which others' time counts, if these are synchronous."""
        return fmean(each[int(TARGET_AT * len(each)) - 1] for each in self.losses)


@dataclass
class Study:
    """A task with an optimizer, learned in several ways. `kept`: curves of earlier runs."""

    task: Task
    kind: Kind
    iterations: int
    kept: Kept = NOTHING
    _known: dict[tuple[Way, float, int], tuple[float, ...]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        return f"{self.task.name}, {self.kind.name}"

    def tuned(self, way: Way, rate: float) -> Curves:
        """Train at the best rate, sought from this one on."""
        return self.at(way, lowest(lambda each: final(self._curve(way, each, TUNED_BY)), rate))

    def at(self, way: Way, rate: float) -> Curves:
        """Train at this rate."""
        return Curves(rate, tuple(self._curve(way, rate, seed) for seed in SEEDS))

    def _curve(self, way: Way, rate: float, seed: int) -> tuple[float, ...]:
        key = way, rate, seed
        if key not in self._known:
            named = self._named(way, rate, seed)
            self._known[key] = self.kept.curve(named, lambda: tuple(self._learned(way, rate, seed)))
        return self._known[key]

    def _named(self, way: Way, rate: float, seed: int) -> str:
        """Return all that a curve depends on, as text."""
        groups = [len(each) for each in grouped(self.task.started(seed), way)]
        schedule = msgspec.json.encode(way.schedule).decode()
        return f"{self.title}, {self.iterations} iterations, rate {rate:g}, seed {seed}: {groups} {way.each} {schedule}"

    def _learned(self, way: Way, rate: float, seed: int) -> list[float]:
        """Return the losses of a training at each evaluation; infinite from where it diverges."""
        task, schedule = self.task, way.schedule
        merges = any(turn.last > turn.first for turns in schedule.turns for turn in turns)
        if merges and schedule.outer is None:
            schedule = msgspec.structs.replace(schedule, rate=self.kind.rule)
        models = [task.started(seed) for _ in range(1 if schedule.steps == "one" else WORKERS)]
        copies = [
            Copy(each, self.kind.make(list(each.parameters()), rate), grouped(each, way)) for each in models
        ]
        learner: Learner | Apart
        if schedule.outer is None:
            learner = Learner(copies, plan_of_schedules(schedule), UNWATCHED, each=way.each)
        else:
            learner = Apart(copies, schedule)
        seen = task.started(seed)
        found: list[float] = []
        for at, batch in enumerate(itertools.islice(task.batches(seed), self.iterations), 1):
            losses = [own(model) for own, model in zip(batch.shares(len(models)), models, strict=True)]
            if not all(math.isfinite(float(loss.detach())) for loss in losses):
                return [*found, *itertools.repeat(math.inf, self.iterations // EVALUATED - len(found))]
            learner.learn(*losses)
            if at % EVALUATED == 0:
                learner.load_into(seen)
                loss = task.loss(seen)
                found.append(loss if math.isfinite(loss) else math.inf)
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


def lowest(loss_at: Callable[[float], float], rate: float) -> float:
    """Return the rate, a power of two from this one, with a lower loss than at half and at double of it.

    >>> lowest(lambda rate: abs(rate - 3), 16.0)
    4.0
    """
    while True:
        best = min((rate, rate / 2, rate * 2), key=loss_at)
        if best == rate:
            return rate
        rate = best


def final(losses: Sequence[float]) -> float:
    return fmean(losses[-LAST:])


def upper_bound(differences: Iterable[float]) -> float:
    """Return the upper 90 % bound of the mean of paired differences, one for each seed; infinite if one is."""
    found = list(differences)
    assert len(found) == len(SEEDS)  # noqa: S101  # the quantile is for as many
    if not all(map(math.isfinite, found)):
        return math.inf
    return fmean(found) + STUDENT_90 * stdev(found) / math.sqrt(len(found))
