"""Data that ranks exchange beside gradients in every step, such as a model's buffers; a session calls it."""

from __future__ import annotations

from typing import Protocol

from hocket.training.buckets import LoadedBucket


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


class Alone:
    """Sends nothing beside the gradients."""

    barrier = False
    meets = False

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
