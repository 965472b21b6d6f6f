"""The guard of steps alone: trainings that diverge or learn slower by 100 steps alone, to which ranks come from few.

Each task is learned in step, 100 steps alone without a guard, and the same with it. Four ranks, each with a model of its own, are
copies in one process with the arithmetic of sessions (`alone.py`). Data is unlike in the tasks that are to retreat: each rank has a
quarter of the directions of a quadratic, or the digits of a quarter of each batch, in the order of their labels.

Time is counted in steps' computation, of which an exchange takes three: where it takes more, the planner chooses more than 100.
"""

from __future__ import annotations

import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean

import torch
from msgspec.structs import replace

from benches.delays import tasks
from benches.delays.alone import Apart, Guard
from benches.delays.kept import NOTHING, Kept
from benches.delays.study import TARGET_AT
from benches.delays.tasks import BATCH, WORKERS, Batch, Task
from benches.delays.working import Copy
from benches.row import Row
from hocket.artefacts.local import Local, shortened
from hocket.tools.report.quantity import TIMES
from hocket.training.guard import drift

SEEDS = (1, 2, 3)
UNGUARDED_SEEDS = SEEDS[:1]
"""Seed of trainings that only show what the guard is for."""

ALONE = 100

EVALUATED, LAST = 10, 20
"""Iterations between evaluations, and number of the last ones whose mean is the end."""

EXCHANGE = 3.0
"""Time of an exchange, in steps' computation."""

TURNS, ENDS_WITHIN, TIME_WITHIN = 2.0, 1.0, 1.01
"""Targets: whole turns until a retreat, per cent by which the end is worse, and the time to a loss over that in step."""

Make = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


@dataclass(frozen=True)
class Case:
    """A task with an optimizer and a number of iterations. `error`: ends are compared by the fraction of wrong samples."""

    name: str
    task: Callable[[], Task]
    make: Make
    iterations: int
    local: Local
    error: bool = False


def steep() -> Task:
    """Quadratic of 20 directions, of which each rank has a quarter, four times as steep as all ranks' together."""

    def loss_of(model: torch.nn.Module, curved: torch.Tensor, centres: torch.Tensor) -> torch.Tensor:
        place: torch.Tensor = model.place  # type: ignore[assignment]  # a Bowl
        return 0.5 * (curved * (place - centres).square()).sum(1).mean()

    whole = torch.linspace(0.1, 1.0, 20)
    of_rank = torch.stack([WORKERS * whole * (torch.arange(20) % WORKERS == at) for at in range(WORKERS)])

    def batches(seed: int) -> Iterator[Batch]:
        draw = torch.Generator().manual_seed(seed)
        while True:
            yield Batch(loss_of, (of_rank, 0.1 * torch.randn(WORKERS, 20, generator=draw) / BATCH**0.5))

    def loss(model: torch.nn.Module) -> float:
        with torch.no_grad():
            return float(loss_of(model, whole[None], torch.zeros(1, 20)))

    return Task("quadratic", tasks.Bowl, batches, loss)


def unlike(make: Callable[[], Task]) -> Callable[[], Task]:
    """Return the task with batches in the order of their labels, so that each rank has other ones."""

    def made() -> Task:
        task = make()

        def batches(seed: int) -> Iterator[Batch]:
            for loss_of, (images, labels) in task.batches(seed):
                order = labels.argsort(stable=True)
                yield Batch(loss_of, (images[order], labels[order]))

        return Task(f"{task.name}, unlike digits", task.model, batches, task.loss, task.error)

    return made


def sgd(rate: float, momentum: float = 0.0) -> Make:
    return lambda parameters: torch.optim.SGD(parameters, lr=rate, momentum=momentum)


def adamw(rate: float) -> Make:
    return lambda parameters: torch.optim.AdamW(parameters, lr=rate)


CASES = (
    Case("SGD, rate 0.6", steep, sgd(0.6), 1000, Local(every=ALONE, grows=True)),
    Case(
        "momentum",
        unlike(tasks.digits_resnet),
        sgd(0.05, 0.9),
        1000,
        Local(every=ALONE, grows=True),
        error=True,
    ),
    Case("AdamW", unlike(tasks.digits_cnn), adamw(0.002), 1000, Local(every=ALONE, grows=True), error=True),
)


@dataclass(frozen=True)
class Run:
    """Result of a run: iterations until the first retreat, infinite without one; and at each evaluation loss, error, and exchanges
    so far. What is not finite is infinite, as is the error of a task without one."""

    retreated: float
    losses: tuple[float, ...]
    errors: tuple[float, ...]
    exchanges: tuple[float, ...]

    @property
    def numbers(self) -> tuple[float, ...]:
        return (self.retreated, *self.losses, *self.errors, *self.exchanges)

    @classmethod
    def of(cls, numbers: tuple[float, ...]) -> Run:
        """Make a run of its `numbers`."""
        retreated, *rest = numbers
        count = len(rest) // 3
        return cls(retreated, *(tuple(rest[at * count : (at + 1) * count]) for at in range(3)))

    def end(self, case: Case) -> float:
        """Return the mean error of the last evaluations, or loss, by which ends are compared."""
        return fmean((self.errors if case.error else self.losses)[-LAST:])


def rows(kept: Kept = NOTHING) -> Iterator[Row]:
    """Each case."""
    for case in CASES:
        yield from _rows(case, kept)


def together(case: Case, *, seed: int) -> Run:
    """Train in step: one model learns with the batches of all ranks."""
    task = case.task()
    model = task.started(seed)
    optimizer, found = case.make(list(model.parameters())), []
    for at, batch in enumerate(itertools.islice(task.batches(seed), case.iterations), 1):
        optimizer.zero_grad()
        batch(model).backward()
        optimizer.step()
        if at % EVALUATED == 0:
            found.append((*_quality(task, model), float(at)))
    return Run(math.inf, *map(tuple, zip(*found, strict=True)))


def learned(case: Case, *, seed: int, guarded: bool, logs: bool = True) -> Run:
    """Train alone. `guarded`: by a guard, which knows losses if `logs`."""
    task, local = case.task(), case.local
    models = [task.started(seed) for _ in range(WORKERS)]
    copies = [Copy(each, case.make(list(each.parameters())), [list(each.parameters())]) for each in models]
    if not guarded:
        local = replace(local, grows=False)
    safer = [shortened(local, local.every >> each) for each in range(1, local.every.bit_length() - 1)]
    guard = Guard([each.schedule(1) for each in safer], logs=logs) if guarded else None
    apart = Apart(copies, local.schedule(1), guard)
    seen, found = task.started(seed), []
    for at, batch in enumerate(itertools.islice(task.batches(seed), case.iterations), 1):
        losses = [own(model) for own, model in zip(batch.shares(WORKERS), models, strict=True)]
        if not guarded and not all(math.isfinite(float(each.detach())) for each in losses):
            break
        apart.learn(*losses)
        if at % EVALUATED == 0:
            apart.load_into(seen)
            found.append((*_quality(task, seen), float(apart.exchanges)))
    lacks = case.iterations // EVALUATED - len(found)
    found += [(math.inf, 1.0 if case.error else math.inf, math.inf)] * lacks
    retreats = [] if guard is None else guard.retreats
    return Run(retreats[0] if retreats else math.inf, *map(tuple, zip(*found, strict=True)))


def _quality(task: Task, model: torch.nn.Module) -> tuple[float, float]:
    return task.loss(model), math.inf if task.error is None else task.error(model)


def time_to(loss: float, runs: Sequence[Run]) -> float:
    """Return the time after which the mean loss of all seeds is at this one; infinite if it never is.

    >>> one = Run(math.inf, (2.0, 1.0), (0.0, 0.0), (1.0, 2.0))
    >>> time_to(1.0, [one]), time_to(0.5, [one])
    (26.0, inf)
    """
    means = [fmean(each) for each in zip(*(run.losses for run in runs), strict=True)]
    exchanges = [fmean(each) for each in zip(*(run.exchanges for run in runs), strict=True)]
    times = (EVALUATED * at + EXCHANGE * made for at, made in enumerate(exchanges, 1))
    return next((time for time, mean in zip(times, means, strict=True) if mean <= loss), math.inf)


def _rows(case: Case, kept: Kept) -> Iterator[Row]:
    where = f"alone: {case.task().name}, {case.name}, {case.local.every} steps"

    def kept_run(way: str, seed: int, learned_so: Callable[..., Run]) -> Run:
        key = f"{where}, seed {seed}, {way}: {case.iterations} iterations"
        by = (sys.modules[__name__], *((drift,) if way.startswith("guarded") else ()))
        return Run.of(kept.curve(key, lambda: learned_so(case, seed=seed).numbers, by))

    def guarded(logs: bool) -> list[Run]:
        so = functools.partial(learned, guarded=True, logs=logs)
        return [kept_run(f"guarded, {_logged(logs)}", seed, so) for seed in SEEDS]

    base = [kept_run("in step", seed, together) for seed in SEEDS]
    unguarded = [
        kept_run("no guard", seed, functools.partial(learned, guarded=False)) for seed in UNGUARDED_SEEDS
    ]
    target = fmean(run.losses[int(TARGET_AT * len(run.losses)) - 1] for run in base)
    whole = time_to(target, base)
    worse = "wrong samples" if case.error else "loss"
    yield Row(
        name="guard",
        what=f"{where}: {worse} at the end without a guard, above those in step",
        value=_above(case, unguarded, base[: len(unguarded)]),
        unit="%",
    )
    yield Row(
        name="guard",
        what=f"{where}: time to a loss of {target:.3g} without a guard, over that in step",
        value=time_to(target, unguarded) / whole,
        unit=TIMES,
    )
    for logs in (True, False) if not case.error else (True,):
        watched, logged = guarded(logs), _logged(logs)
        yield Row(
            name="guard",
            what=f"{where}, {logged}: turns of {ALONE} steps until the guard retreats, the most of {len(SEEDS)} seeds",
            value=max(run.retreated for run in watched) / ALONE,
            target=TURNS,
        )
        yield Row(
            name="guard",
            what=f"{where}, {logged}: {worse} at the end with the guard, above those in step",
            value=_above(case, watched, base),
            target=ENDS_WITHIN,
            unit="%",
        )
        yield Row(
            name="guard",
            what=f"{where}, {logged}: time to a loss of {target:.3g} with the guard, over that in step",
            value=time_to(target, watched) / whole,
            target=TIME_WITHIN,
            unit=TIMES,
        )


def _logged(logs: bool) -> str:
    return "the loss logged" if logs else "no loss logged"


def _above(case: Case, found: Sequence[Run], base: Sequence[Run]) -> float:
    """Return the difference of means over seeds: of points where samples are wrong, else of a share of the loss."""
    own, other = (fmean(run.end(case) for run in runs) for runs in (found, base))
    return 100 * (own - other if case.error else own / other - 1)
