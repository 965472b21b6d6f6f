"""Guards of convergence, at rates that suit synchronous training but not late gradients, uncorrected or own ones first.

Each task is learned without a guard, which shows that it diverges; judged as a plan is, by the curvature after the synchronous
window; and learned with the sentinel alone. The arithmetic is that of sessions, in one process (`learner.py`).
"""

from __future__ import annotations

import itertools
import logging
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from statistics import fmean

import torch
from msgspec.structs import replace

from benches.delays import benign, drifting, tasks
from benches.delays.kept import NOTHING, Kept
from benches.delays.learner import Learner, plan_of_schedules
from benches.delays.learning import schedule_of
from benches.delays.tasks import Task
from benches.delays.working import Copy
from benches.row import Row
from hocket.artefacts.learning import Learning
from hocket.artefacts.plan import Due, Schedule, Turn
from hocket.planning.admission import judged
from hocket.planning.guard import accepted, used
from hocket.settings import Settings
from hocket.torch.curvature import largest_curvature
from hocket.torch.hyperparameters import learning_of
from hocket.training.guard import oversight, sentinel
from hocket.training.guard.sentinel import WINDOW_MIN

MOMENTUM = 0.9
SEEDS = (1, 2, 3)

LATE = Schedule(turns=((Turn(first=0, last=0, due=Due(iteration=1)),),), delay_max=1)
"""Schedule with every gradient an update late: the largest stable rate times curvature is 0.1 instead of 3.8."""

OWN_FIRST = replace(schedule_of(4, 1, own_first=True), rate="linear")
"""Merged by 4 and late by 1, own gradients first: the largest stable rate times curvature is 0.7."""

UNWATCHED, WATCHED = Settings(sentinel=False), Settings(guard="off")

BENIGN, BENIGN_ITERATIONS = 20, 200

TIMES_AS_LARGE, RETREATS_WITHIN, ENDS_WITHIN, FALSE = 2.0, 30, 1.0, 1.0
"""Targets: loss of a diverging run over the synchronous one, updates, per cent, and retreats of 20 benign runs."""


@dataclass(frozen=True)
class Case:
    """A task, a rate between the limits, one far below both, and the number of iterations. `error`: compare the ends by the
    fraction of wrong samples, as the loss is nearly 0; else by the loss."""

    task: Callable[[], Task]
    rate: float
    benign_rate: float
    iterations: int
    error: bool = False
    schedule: Schedule = LATE

    @property
    def title(self) -> str:
        how = "" if self.schedule == LATE else ", own gradients first, merged 4, late by 1"
        return f"{self.task().name}{how}, rate {self.rate:g}"


CASES = (
    Case(tasks.bowl, rate=0.6, benign_rate=0.04, iterations=400),
    Case(tasks.logistic, rate=0.4, benign_rate=0.02, iterations=1000),
    Case(tasks.digits_cnn, rate=0.05, benign_rate=0.002, iterations=400, error=True),
)

OWN_CASES = (Case(tasks.bowl, rate=1.5, benign_rate=0.04, iterations=400, schedule=OWN_FIRST),)


@dataclass(frozen=True)
class Run:
    """Result of a run: mean loss of the second half of its batches, final loss and error, and updates until the first retreat,
    infinite without one."""

    later_loss: float
    loss: float
    error: float
    updates: float


def guard(kept: Kept = NOTHING) -> Iterator[Row]:
    """Each task, then benign runs; the same of ranks that step alone, and of own gradients first. What is kept is not computed
    again."""
    logging.getLogger("hocket.delays").setLevel(logging.ERROR)
    for case in (*CASES, *OWN_CASES):
        yield from _rows(case, kept)
    yield Row(
        name="guard",
        what="AdamW, rate 0.002, late by 1 uncorrected, which learns slower: times of 1 that the guard lets it pass",
        value=float(accepted(judged(LATE, _adamw()))),
        target=0.0,
    )
    yield Row(
        name="guard",
        what=f"retreats in {BENIGN} runs at rates that late gradients bear",
        value=float(sum(_benign(at, kept).updates < math.inf for at in range(BENIGN))),
        target=FALSE,
    )
    yield from drifting.rows(kept)
    yield from benign.rows(kept)


def _adamw() -> Learning | None:
    """Return what is known of AdamW without a curvature."""
    return learning_of(torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=0.002))


def learned(
    task: Task, rate: float, iterations: int, *, seed: int, schedule: Schedule, settings: Settings
) -> Run:
    model = task.started(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM)
    learner = Learner(
        [Copy(model, optimizer, [list(model.parameters())])], plan_of_schedules(schedule), settings
    )
    losses = []
    for loss_of in itertools.islice(task.batches(seed), iterations):
        loss = loss_of(model)
        losses.append(float(loss.detach()))
        learner.learn(loss)
        learner.log(losses[-1])
    learner.flush()
    updates = math.inf if learner.retreated is None else float(learner.retreated - WINDOW_MIN)
    error = math.inf if task.error is None else task.error(model)
    return Run(_mean(losses[iterations // 2 :]), task.loss(model), error, updates)


def stability(task: Task, rate: float, seed: int, schedule: Schedule = LATE) -> float:
    """Fraction of the limit of stability that a schedule uses, by the guard's measurement after the synchronous window."""
    model = task.started(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=MOMENTUM)
    learner = Learner([Copy(model, optimizer, [list(model.parameters())])], plan_of_schedules(Schedule()))
    batches = task.batches(seed)
    for loss_of in itertools.islice(batches, WINDOW_MIN):
        learner.learn(loss_of(model))
    fixed = next(batches)
    curvature = largest_curvature(model, optimizer, lambda: fixed(model), 30)
    learning = learning_of(optimizer)
    assert learning is not None  # noqa: S101  # SGD is known
    found = judged(schedule, replace(learning, curvature=curvature))
    return next(used(check) for check in found if check.name == "stability")


def _kept(
    task: Task, rate: float, iterations: int, *, seed: int, schedule: Schedule, settings: Settings, kept: Kept
) -> Run:
    """Return what `learned` returns, and keep it."""

    def computed() -> tuple[float, ...]:
        return astuple(learned(task, rate, iterations, seed=seed, schedule=schedule, settings=settings))

    key = f"{task.name}, rate {rate:g}, seed {seed}: {iterations} iterations, {settings.sentinel} {schedule}"
    by = (sys.modules[__name__], *((oversight, sentinel) if settings.sentinel else ()))
    return Run(*kept.curve(key, computed, by))


def _rows(case: Case, kept: Kept) -> Iterator[Row]:
    task = case.task()

    def all_of(schedule: Schedule, settings: Settings) -> list[Run]:
        return [
            _kept(
                task,
                case.rate,
                case.iterations,
                seed=seed,
                schedule=schedule,
                settings=settings,
                kept=kept,
            )
            for seed in SEEDS
        ]

    synchronous = all_of(Schedule(), UNWATCHED)
    unguarded = all_of(case.schedule, UNWATCHED)
    watched = all_of(case.schedule, WATCHED)
    where = case.title
    yield Row(
        name="guard",
        what=f"{where}: later losses without a guard over those of synchronous training, the least of {len(SEEDS)} seeds",
        value=min(a.later_loss / b.later_loss for a, b in zip(unguarded, synchronous, strict=True)),
        target=TIMES_AS_LARGE,
        least=True,
    )
    yield Row(
        name="guard",
        what=f"{where}: the check of stability over its limit, the least of {len(SEEDS)} seeds: above 1, a plan is refused",
        value=min(stability(task, case.rate, seed, case.schedule) for seed in SEEDS),
        target=1.0,
        least=True,
    )
    yield Row(
        name="guard",
        what=f"{where}: updates until the sentinel retreats, the most of {len(SEEDS)} seeds",
        value=max(run.updates for run in watched),
        target=RETREATS_WITHIN,
    )
    yield _ends(case, where, synchronous, watched)


def _ends(case: Case, where: str, synchronous: Sequence[Run], watched: Sequence[Run]) -> Row:
    """Difference of means over seeds."""
    if case.error:
        measure, worse = (
            "wrong samples",
            100 * (fmean(run.error for run in watched) - fmean(run.error for run in synchronous)),
        )
    else:
        base = fmean(run.loss for run in synchronous)
        measure, worse = "loss", 100 * (fmean(run.loss for run in watched) / base - 1)
    return Row(
        name="guard",
        what=f"{where}: {measure} at the end with the sentinel alone, above that of synchronous training",
        value=worse,
        target=ENDS_WITHIN,
        unit="%",
    )


def _benign(at: int, kept: Kept) -> Run:
    case = CASES[at % len(CASES)]
    return _kept(
        case.task(),
        case.benign_rate,
        BENIGN_ITERATIONS,
        seed=at,
        schedule=LATE,
        settings=WATCHED,
        kept=kept,
    )


def _mean(losses: Sequence[float]) -> float:
    return fmean(losses) if all(map(math.isfinite, losses)) else math.inf
