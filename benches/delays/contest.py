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


class Contender(Struct, frozen=True, kw_only=True):
    """A way to train, tuned: `variants` seemed best of their kind beforehand; the fastest of a first turn counts. Unless
    `synchronous`, gradients may be merged or late."""

    name: str
    variants: tuple[Ddp | Planned, ...]
    synchronous: bool = True


class Measured(Struct, frozen=True, kw_only=True):
    """Result of a contender: the chosen variant, and the mean seconds of its iterations, by turn."""

    variant: int
    iterations_s: tuple[float, ...]


class Driven(Struct, frozen=True, kw_only=True):
    """Result of a job that drives itself: times of its beginning and of each iteration's end, in seconds; and the number of
    iterations whose gradients were applied to the parameters with the fewest and the most."""

    ends_s: tuple[float, ...]
    least_applied: float
    most_applied: float
