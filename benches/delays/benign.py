"""Trainings that a guard is to let alone: own gradients first, merged updates, and steps alone, which learn about as in step.

Ten ways over three models and two optimizers, each with two seeds, at rates that were not tuned for them. Steps alone are trained
without a guard and judged afterwards, with losses and without: the first verdict is what would have ended them.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import NamedTuple

from msgspec.structs import replace

from benches.delays import tasks
from benches.delays.alone import Apart, Guard
from benches.delays.kept import NOTHING, Kept
from benches.delays.learner import Learner, plan_of_schedules
from benches.delays.learning import schedule_of
from benches.delays.study import EVALUATED, KINDS, TARGET_AT, Kind, final
from benches.delays.tasks import WORKERS, Task
from benches.delays.working import Copy
from benches.row import Row
from hocket.artefacts.local import Local
from hocket.artefacts.plan import Schedule
from hocket.settings import Settings
from hocket.tools.report.quantity import TIMES
from hocket.training.guard import drift, oversight, sentinel

SEEDS = (1, 2)

FALSE = 1.0
"""Target: trainings of 20 that are ended."""

WATCHED = Settings(guard="off")

SGD, ADAMW = KINDS


class Way(NamedTuple):
    """A way to train a task with an optimizer. `name`: that of its row; its schedule begins after the synchronous window."""

    name: str
    task: Callable[[], Task]
    kind: Kind
    iterations: int
    schedule: Schedule


IN_STEP, OWN_FIRST, MERGED, ALONE = "in step", "own gradients first", "merged", "steps alone"

WAYS = (
    Way(OWN_FIRST, tasks.digits_cnn, SGD, 300, schedule_of(1, 1, own_first=True)),
    Way(OWN_FIRST, tasks.digits_resnet, SGD, 300, schedule_of(1, 1, own_first=True)),
    Way(OWN_FIRST, tasks.digits_resnet, ADAMW, 300, schedule_of(2, 1, own_first=True)),
    Way(OWN_FIRST, tasks.bytes_transformer, ADAMW, 200, schedule_of(2, 1, own_first=True)),
    Way(MERGED, tasks.digits_cnn, SGD, 300, schedule_of(2, 0)),
    Way(MERGED, tasks.bytes_transformer, ADAMW, 200, schedule_of(2, 0)),
    Way(ALONE, tasks.digits_cnn, SGD, 300, Local(every=20).schedule(1)),
    Way(ALONE, tasks.digits_cnn, ADAMW, 300, Local(every=30, rate=0.7, momentum=0.5).schedule(1)),
    Way(ALONE, tasks.digits_resnet, SGD, 300, Local(every=10).schedule(1)),
    Way(ALONE, tasks.bytes_transformer, ADAMW, 200, Local(every=20).schedule(1)),
)


class Run(NamedTuple):
    """Result of a run: whether its guard spoke, with losses or without, and losses of samples not trained on, by evaluation."""

    retreats: bool
    losses: tuple[float, ...]


def rows(kept: Kept = NOTHING) -> Iterator[Row]:
    """Rows of how well they learn, by kind, and of those that a guard ends."""
    runs = {(way, seed): _kept(way, seed, kept) for way in WAYS for seed in SEEDS}
    for name in (OWN_FIRST, MERGED, ALONE):
        above, slower = [], []
        for way in (way for way in WAYS if way.name == name):
            plain = way._replace(name=IN_STEP, schedule=Schedule())
            base = [_kept(plain, seed, kept).losses for seed in SEEDS]
            found = [runs[way, seed].losses for seed in SEEDS]
            above.append(fmean(map(final, found)) - fmean(map(final, base)))
            slower.append(_progress(found, base))
        yield Row(
            name="guard",
            what=f"benign, {name}: final loss above that in step, the most of {len(above)} ways",
            value=max(above),
        )
        yield Row(
            name="guard",
            what=f"benign, {name}: iterations to a loss over those in step, the most of {len(slower)} ways",
            value=max(slower),
            unit=TIMES,
        )
    yield Row(
        name="guard",
        what=f"benign: retreats in {len(runs)} trainings",
        value=float(sum(run.retreats for run in runs.values())),
        target=FALSE,
    )


def learned(way: Way, seed: int) -> Run:
    """Train; a synchronous schedule has no guard."""
    task, kind, schedule = way.task(), way.kind, way.schedule
    models = [task.started(seed) for _ in range(1 if schedule.steps == "one" else WORKERS)]
    copies = [
        Copy(each, kind.make(list(each.parameters()), kind.rate), [list(each.parameters())])
        for each in models
    ]
    guard = Guard((), logs=True, acts=False)
    learner: Learner | Apart
    if schedule.outer is None:
        learner = Learner(copies, plan_of_schedules(replace(schedule, rate=kind.rule)), WATCHED)
    else:
        learner = Apart(copies, schedule, guard)
    seen, found = task.started(seed), []
    for at, batch in enumerate(itertools.islice(task.batches(seed), way.iterations), 1):
        losses = [own(model) for own, model in zip(batch.shares(len(models)), models, strict=True)]
        learner.learn(*losses)
        if isinstance(learner, Learner):
            learner.log(fmean(float(each.detach()) for each in losses))
        if at % EVALUATED == 0:
            learner.load_into(seen)
            found.append(task.loss(seen))
    if isinstance(learner, Learner):
        return Run(learner.retreated is not None, tuple(found))
    return Run(speaks(guard, logs=True) or speaks(guard, logs=False), tuple(found))


def speaks(guard: Guard, *, logs: bool) -> bool:
    """Return whether the exchanges that a guard has noted would have ended steps alone. `logs`: losses are known."""
    judge = drift.Judge()
    for steps, reports in guard.exchanges:
        known = reports if logs else {rank: each._replace(noise2=-1.0) for rank, each in reports.items()}
        if judge.see(0, steps, known) is not None:
            return True
    return False


def _kept(way: Way, seed: int, kept: Kept) -> Run:
    key = f"benign, {way.name}, {way.kind.name}, {way.task.__name__}, seed {seed}: {way.iterations} iterations, {way.schedule}"
    judges = (oversight, sentinel) if way.schedule.outer is None else (drift,)
    by = (sys.modules[__name__], *(judges if way.schedule.turns else ()))

    def numbers() -> tuple[float, ...]:
        run = learned(way, seed)
        return (float(run.retreats), *run.losses)

    retreats, *losses = kept.curve(key, numbers, by)
    return Run(bool(retreats), tuple(losses))


def _progress(found: list[tuple[float, ...]], base: list[tuple[float, ...]]) -> float:
    """Return the iterations to the loss that training in step has at some fraction of its own, over those in step."""
    own, other = ([fmean(each) for each in zip(*curves, strict=True)] for curves in (found, base))
    loss = other[int(TARGET_AT * len(other)) - 1]
    to = [next((at for at, each in enumerate(curve, 1) if each <= loss), math.inf) for curve in (own, other)]
    return to[0] / to[1]
