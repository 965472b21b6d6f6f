"""Contenders and their results: shared by the benchmark and its ranks."""

from __future__ import annotations

from msgspec import Struct

from hocket.artefacts.plan import Plan


class Ddp(Struct, frozen=True, kw_only=True, tag="ddp"):
    """DistributedDataParallel on Gloo, with buckets of `bucket_mb`, and gradients in f16 by its hook if `f16`."""

    bucket_mb: float
    f16: bool = False

    @property
    def title(self) -> str:
        return f"buckets of {self.bucket_mb:g} MB"


class Planned(Struct, frozen=True, kw_only=True, tag="plan"):
    plan: Plan

    @property
    def title(self) -> str:
        return self.plan.label


class Never(Struct, frozen=True, kw_only=True, tag="never"):
    """Ranks that train by themselves, and exchange nothing."""

    @property
    def title(self) -> str:
        return "no exchange"


class Contender(Struct, frozen=True, kw_only=True):
    """A way to train, tuned: `variants` seemed best of their kind beforehand; the fastest of a first turn counts. Unless
    `synchronous`, gradients may be merged or late."""

    name: str
    variants: tuple[Ddp | Planned | Never, ...]
    synchronous: bool = True


class Course(Struct, frozen=True, kw_only=True):
    """How long contenders train.

    Attributes:
        turns: blocks of iterations of each contender, one after the other.
        iterations: least number of those of a block that count.
        warm_up: those before them, which do not.
        tuning: those for choosing a variant, after as many for warming up.
    """

    turns: int = 3
    iterations: int = 12
    warm_up: int = 4
    tuning: int = 6


class Measured(Struct, frozen=True, kw_only=True):
    """Result of a contender: the chosen variant, and the mean seconds of its iterations, by turn. `spans_s`: the times of the
    machine's clock between which these were."""

    variant: int
    iterations_s: tuple[float, ...]
    spans_s: tuple[tuple[float, float], ...] = ()


class Driven(Struct, frozen=True, kw_only=True):
    """Result of a job that drives itself: times of its beginning and of each iteration's end, in seconds; and the number of
    iterations whose gradients were applied to the parameters with the fewest and the most."""

    ends_s: tuple[float, ...]
    least_applied: float
    most_applied: float
