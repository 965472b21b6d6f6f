"""Request for the ranks: the runs that they make, one after the other; and what each run brings."""

from __future__ import annotations

from msgspec import Struct


class Run(Struct, frozen=True, kw_only=True):
    """A training of a method, with a learning rate of AdamW and a seed of the model and of each rank's batches."""

    method: str
    rate: float
    seed: int


class Request(Struct, frozen=True, kw_only=True):
    """Runs of one job. `model`: name of the task; `steps`: of a rank in each run; `evaluations`: of the held-out loss in each;
    `think_s`: time that each step waits before its backward, in place of a larger model's computation; `deadline_s`: of a run."""

    runs: tuple[Run, ...]
    model: str
    steps: int
    evaluations: int
    think_s: float
    deadline_s: float


class Point(Struct, frozen=True, kw_only=True):
    """Held-out loss of what a job would save, after so many steps and so much time; None: not finite. Evaluations take no time."""

    step: int
    time_s: float
    loss: float | None


class Trained(Struct, frozen=True, kw_only=True):
    """Result of a run."""

    run: Run
    points: tuple[Point, ...]

    @property
    def loss(self) -> float | None:
        """Held-out loss at the end; None: training diverged."""
        return self.points[-1].loss
