"""The interface to factors by which a script scales its loss (`GradScaler`), where gradients are merged or late."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from hocket.training.memory.buckets import LoadedBucket


class Scales(Protocol):
    """Factor of each iteration's gradients, as far as these are not applied: the same on all ranks. Without a scaler, each is 1."""

    @property
    def used(self) -> bool:
        """True if a scaler is in use, so that sums may overflow."""

    def made(self, iteration: int, applied: int) -> None:
        """Note the factor of an iteration whose backward ends. `applied`: iterations before this one are of no interest."""

    def of(self, iteration: int) -> float:
        """Return the factor of the gradients of a turn which ends with this iteration."""

    def give(self, mean: LoadedBucket, iterations: range) -> None:
        """Bring a turn's mean to the factor of the last iteration, by which the script's next step divides it."""

    def saved(self) -> Mapping[int, float]:
        """Return the factors of iterations whose gradients are not applied."""

    def restore(self, saved: Mapping[int, float]) -> None:
        """Restore what was saved."""
