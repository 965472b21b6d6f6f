"""Data that ranks exchange beside gradients in every step, such as a model's buffers; a session calls it."""

from __future__ import annotations

from typing import Protocol

from hocket.job.rendezvous import Job
from hocket.training.memory.buckets import LoadedBucket


class Companion(Protocol):
    """Called at the same points of the same step on all ranks.

    Attributes:
        barrier: backward waits for all buckets, also where there are gates.
        meets: it may request meetings, which belong to the step that asks for them.
    """

    barrier: bool

    @property
    def meets(self) -> bool:
        """As above."""

    def begin(self) -> None:
        """Backward begins, here or on another rank."""

    def end(self) -> bool:
        """Backward is over; whether this rank requests a meeting of all."""

    def launched(self, *, waits: bool) -> None:
        """All buckets are in flight; `waits`: the session waits for them now, not gate by gate."""

    def arrive(self) -> None:
        """The step's first bucket is reduced, and the votes are counted."""

    def meet(self) -> None:
        """Some rank requested a meeting: all are here."""

    def reduced(self, bucket: LoadedBucket) -> None:
        """A bucket is reduced."""

    def step_ended(self) -> None:
        """Backward returns."""

    def retire(self) -> None:
        """Another session trains the model from now on."""


class MembersCompanion(Companion, Protocol):
    """In an elastic job. A loss may interrupt a step: then `load`, `end` and `meet` come again in that step. `meet` comes when all
    gradients are reduced, and raises EpochError where a member is lost; only `step_ended` says that the step stands."""

    def load(self, job: Job) -> None:
        """An epoch of other members begins: programs for these, at the same position on all of them."""


class Alone:
    """Sends nothing beside the gradients."""

    barrier = False
    meets = False

    def load(self, job: Job) -> None:
        """Does nothing."""

    def begin(self) -> None:
        """Does nothing."""

    def end(self) -> bool:
        """No meeting."""
        return False

    def launched(self, *, waits: bool) -> None:
        """Does nothing."""

    def arrive(self) -> None:
        """Does nothing."""

    def meet(self) -> None:
        """Does nothing."""

    def reduced(self, bucket: LoadedBucket) -> None:
        """Does nothing."""

    def step_ended(self) -> None:
        """Does nothing."""

    def retire(self) -> None:
        """Does nothing."""
