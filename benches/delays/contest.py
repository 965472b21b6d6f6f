"""What contenders are, and what came of them: shared by the benchmark and its ranks."""

from __future__ import annotations

from msgspec import Struct

from hocket.artefacts.plan import Plan


class Ddp(Struct, frozen=True, kw_only=True, tag="ddp"):
    """DistributedDataParallel on Gloo, with buckets of that size, and gradients in f16 by its hook if `f16`."""

    bucket_mb: float
    f16: bool = False

    @property
    def title(self) -> str:
        """For people."""
        return f"buckets of {self.bucket_mb:g} MB"


class Planned(Struct, frozen=True, kw_only=True, tag="plan"):
    """Hocket with a plan."""

    plan: Plan

    @property
    def title(self) -> str:
        """For people."""
        return self.plan.label


class Contender(Struct, frozen=True, kw_only=True):
    """A way to train, tuned: `variants` are what seemed best of its kind beforehand; the one that is fastest in a first turn
    counts. Not `synchronous`: gradients may be merged or late.
    """

    name: str
    variants: tuple[Ddp | Planned, ...]
    synchronous: bool = True


class Measured(Struct, frozen=True, kw_only=True):
    """Of a contender: which variant, and by turn the mean seconds of its iterations."""

    variant: int
    iterations_s: tuple[float, ...]


class Driven(Struct, frozen=True, kw_only=True):
    """Of a job that drives itself: when it began and each iteration ended, in seconds; and of how many iterations the gradients
    were applied, to the parameters to which least and most were.
    """

    ends_s: tuple[float, ...]
    least_applied: float
    most_applied: float
