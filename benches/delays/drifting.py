"""The guard of steps alone: trainings that diverge or learn slower by 100 steps alone, and benign ones.

Each task is learned in step, 100 steps alone without a guard, and the same with it. Four ranks, each with a model of its own, are
copies in one process with the arithmetic of sessions (`alone.py`). Data is unlike in the tasks that are to retreat: each rank has a
quarter of the directions of a quadratic, or the digits of a quarter of each batch, in the order of their labels.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean

import torch

from benches.delays import tasks
from benches.delays.alone import Apart, Guard
from benches.delays.tasks import BATCH, WORKERS, Batch, Task
from benches.delays.working import Copy
from benches.row import Row
from hocket.artefacts.local import Local, shortened

SEEDS = (1, 2, 3)

ALONE = 100

EVALUATED, LAST = 50, 4
"""Iterations between evaluations, and number of the last ones whose mean is the end."""

EXCHANGES, ENDS_WITHIN, FALSE = 2.0, 1.0, 1.0
"""Targets: exchanges until a retreat, per cent by which the end is worse, and retreats of 20 benign runs."""

BENIGN = 20

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
    Case("SGD, rate 0.6", steep, sgd(0.6), 1000, Local(every=ALONE)),
    Case("momentum", unlike(tasks.digits_resnet), sgd(0.05, 0.9), 1000, Local(every=ALONE), error=True),
    Case("AdamW", unlike(tasks.digits_cnn), adamw(0.002), 1000, Local(every=ALONE), error=True),
)

BENIGN_CASES = (
    Case("momentum", tasks.digits_cnn, sgd(0.05, 0.9), 400, Local(every=20)),
    Case("AdamW", tasks.digits_cnn, adamw(0.002), 400, Local(every=30, rate=0.7, momentum=0.5)),
    Case("momentum", tasks.digits_resnet, sgd(0.05, 0.9), 300, Local(every=10)),
    Case("AdamW", tasks.bytes_transformer, adamw(0.002), 200, Local(every=20)),
)


@dataclass(frozen=True)
class Run:
    """Result of a run: loss and error at the end, and iterations until the first retreat, None without one."""

    loss: float
    error: float
    retreated: int | None


def rows() -> Iterator[Row]:
    """Each case, then benign runs."""
    for case in CASES:
        yield from _rows(case)
    for logs in (True, False):
        found = [
            learned(BENIGN_CASES[at % len(BENIGN_CASES)], seed=at, guarded=True, logs=logs)
            for at in range(BENIGN)
        ]
        yield Row(
            name="guard",
            what=f"alone: retreats in {BENIGN} runs that learn well, {_logged(logs)}",
            value=float(sum(run.retreated is not None for run in found)),
            target=FALSE,
        )


def learned(case: Case, *, seed: int, guarded: bool, logs: bool = True, most: int = ALONE) -> Run:
    """Train. `most`: steps alone at most; `guarded`: by a guard, which knows losses if `logs`."""
    task, local = case.task(), shortened(case.local, most)
    models = [task.started(seed) for _ in range(WORKERS)]
    copies = [Copy(each, case.make(list(each.parameters())), [list(each.parameters())]) for each in models]
    safer = [shortened(local, local.every >> each) for each in range(1, local.every.bit_length() - 1)]
    guard = Guard([each.schedule(1) for each in safer], logs=logs) if guarded else None
    apart = Apart(copies, local.schedule(1), guard)
    seen, found = task.started(seed), []
    for at, batch in enumerate(itertools.islice(task.batches(seed), case.iterations), 1):
        losses = [own(model) for own, model in zip(batch.shares(WORKERS), models, strict=True)]
        if not guarded and not all(math.isfinite(float(each.detach())) for each in losses):
            return Run(math.inf, 1.0, None)
        apart.learn(*losses)
        if at % EVALUATED == 0:
            apart.load_into(seen)
            found.append((task.loss(seen), math.nan if task.error is None else task.error(seen)))
    loss, error = (fmean(each) for each in zip(*found[-LAST:], strict=True))
    retreats = [] if guard is None else guard.retreats
    return Run(loss, error, retreats[0] if retreats else None)


def _rows(case: Case) -> Iterator[Row]:
    where = f"alone: {case.task().name}, {case.name}, {case.local.every} steps"
    together = [learned(case, seed=seed, guarded=False, most=1) for seed in SEEDS]
    unguarded = [learned(case, seed=seed, guarded=False) for seed in SEEDS]
    worse = "wrong samples" if case.error else "loss"
    yield Row(
        name="guard",
        what=f"{where}: {worse} at the end without a guard, above those in step",
        value=_above(case, unguarded, together),
        unit="%",
    )
    for logs in (True, False) if not case.error else (True,):
        watched = [learned(case, seed=seed, guarded=True, logs=logs) for seed in SEEDS]
        waits = [math.inf if run.retreated is None else run.retreated / ALONE for run in watched]
        yield Row(
            name="guard",
            what=f"{where}, {_logged(logs)}: exchanges until the guard retreats, the most of {len(SEEDS)} seeds",
            value=max(waits),
            target=EXCHANGES,
        )
        yield Row(
            name="guard",
            what=f"{where}, {_logged(logs)}: {worse} at the end with the guard, above those in step",
            value=_above(case, watched, together),
            target=ENDS_WITHIN,
            unit="%",
        )


def _above(case: Case, found: list[Run], base: list[Run]) -> float:
    """Return the difference of means over seeds: of points where samples are wrong, else of a share of the loss."""
    if case.error:
        return 100 * (fmean(run.error for run in found) - fmean(run.error for run in base))
    return 100 * (fmean(run.loss for run in found) / fmean(run.loss for run in base) - 1)


def _logged(logs: bool) -> str:
    return "the loss logged" if logs else "no loss logged"
