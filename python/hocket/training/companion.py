"""What ranks exchange beside gradients in every step, such as a model's buffers: when a session calls it."""

from __future__ import annotations

from typing import Protocol

from hocket.training.buckets import LoadedBucket


class Companion(Protocol):
    """Called at the same points of the same step on all ranks.

    Attributes:
        barrier: backward waits for all buckets, also where there are gates.
    """

    barrier: bool

    def begin(self) -> None:
        """Backward begins, or another rank's step."""

    def end(self) -> bool:
        """Backward is over; whether this rank asks all for a meeting."""

    def launched(self, *, waits: bool) -> None:
        """All buckets are on their way; `waits`: the session waits for them now, not gate by gate."""

    def arrive(self) -> None:
        """The step's first bucket is reduced, and the votes are counted."""

    def meet(self) -> None:
        """Some rank asked for a meeting: all are here."""

    def reduced(self, bucket: LoadedBucket) -> None:
        """A bucket is reduced."""

    def step_ended(self) -> None:
        """Backward returns."""


class Alone:
    """Nothing goes with the gradients."""

    barrier = False

    def begin(self) -> None:
        """Nothing."""

    def end(self) -> bool:
        """No meeting."""
        return False

    def launched(self, *, waits: bool) -> None:
        """Nothing."""

    def arrive(self) -> None:
        """Nothing."""

    def meet(self) -> None:
        """Nothing."""

    def reduced(self, bucket: LoadedBucket) -> None:
        """Nothing."""

    def step_ended(self) -> None:
        """Nothing."""
