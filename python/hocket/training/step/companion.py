"""Companions of a session: data that ranks exchange beside gradients in every step, such as a model's buffers."""

from __future__ import annotations

from typing import Protocol

from hocket.job.rendezvous import Job
from hocket.training.memory.buckets import LoadedBucket


class Companion(Protocol):
    """Hooks that a session calls at the same points of the same step on all ranks.

    Attributes:
        barrier: backward waits for all buckets, even where there are gates.
        meets: the companion may request meetings, which belong to the step that requests them.
    """

    barrier: bool

    @property
    def meets(self) -> bool:
        """Return whether the companion may request meetings."""

    def begin(self) -> None:
        """Note that backward begins, here or on another rank."""

    def end(self) -> bool:
        """Note that backward is over; return whether this rank requests a meeting of all ranks."""

    def launched(self, *, waits: bool) -> None:
        """Note that all buckets are in flight; `waits`: the session waits for them now, not gate by gate."""

    def arrive(self) -> None:
        """Note that the step's first bucket is reduced and the votes are counted."""

    def meet(self) -> None:
        """Meet the other ranks: some rank requested a meeting, and all are here."""

    def reduced(self, bucket: LoadedBucket) -> None:
        """Note that a bucket is reduced."""

    def step_ended(self) -> None:
        """Note that backward returns."""

    def retire(self) -> None:
        """Stop: another session trains the model from now on."""


class MembersCompanion(Companion, Protocol):
    """Companion in an elastic job. A loss may interrupt a step: then the step calls `load`, `end` and `meet` again. `meet` comes
    when all gradients are reduced, and raises EpochError where a member is lost; only `step_ended` says that the step stands."""

    def load(self, job: Job) -> None:
        """Load programs for the other members of a new epoch, at the same position on all of them."""


class Alone:
    """Companion that sends nothing beside the gradients."""

    barrier = False
    meets = False

    def load(self, job: Job) -> None: ...

    def begin(self) -> None: ...

    def end(self) -> bool:
        """Request no meeting."""
        return False

    def launched(self, *, waits: bool) -> None: ...

    def arrive(self) -> None: ...

    def meet(self) -> None: ...

    def reduced(self, bucket: LoadedBucket) -> None: ...

    def step_ended(self) -> None: ...

    def retire(self) -> None: ...
