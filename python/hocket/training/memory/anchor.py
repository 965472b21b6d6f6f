"""The interface between training and a framework's anchor, ahead of which a rank trains: with its own gradients until means arrive
(`Anchor`), or by steps of its own between exchanges (`LocalAnchor`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from hocket.artefacts.plan import Outer
from hocket.training.memory.buckets import LoadedBucket


@dataclass(frozen=True)
class Pending:
    """Turn that the anchor lacks: this rank's own sums, the turn's iterations, and parameters to which none of these gave a
    gradient on this rank."""

    sums: LoadedBucket
    iterations: range
    unmade: Collection[str]


@dataclass(frozen=True)
class Arrival:
    """Turn that the anchor takes. Where ranks step alone, its gradients are how far ranks came, and `unmade` and the own
    sums of `pending` are of no use.

    Attributes:
        mean: gradients' means over all ranks and iterations.
        own: this rank's sums over the turn's iterations.
        iterations: those of the turn, counted since the model was distributed.
        unmade: parameters without a gradient from any rank.
        factor: factor of the learning rate in each of the anchor's steps; where ranks step alone, that of the mean.
        weight: factor of what is in `own`, where ranks step alone.
        pending: turns that the anchor lacks afterwards, the oldest first.
        ahead: this rank, which steps alone, has stepped since the turn left, whatever `pending` says.
    """

    mean: LoadedBucket
    own: LoadedBucket
    iterations: range
    unmade: Collection[str]
    factor: float
    pending: tuple[Pending, ...] = ()
    weight: float = 1.0
    ahead: bool = False


class OwnGradients(Protocol):
    """Gradients that are the rank's own until the step."""

    def copy(self, name: str, view: Any, *, add: bool) -> None:
        """Copy the gradient of `name` into `view`, or add it to what is there; it stays where it is. A missing one is zero.
        UsageError: it is the gradient of the step before, or was added to it."""

    def detach(self, name: str) -> None:
        """Move the gradient of `name` out of memory in which sums travel."""

    def zeroed(self, names: Iterable[str]) -> None:
        """Note that the script has filled these gradients with zeros."""


class Anchor(Protocol):
    """Parameters and optimizer state that are the same on all ranks, apart from those with which this rank trains."""

    @property
    def gradients(self) -> OwnGradients:
        """Gradients of the rank."""

    @property
    def held_bytes(self) -> int:
        """Bytes of the anchor's parameters and state."""

    def begin(self) -> None:
        """Expect own gradients from the next backward on."""

    def next_step(self, iteration: int, arrivals: Sequence[Arrival], *, lacks: range) -> None:
        """Let the optimizer's next step go on from the gradients of this iteration, which are the rank's own: the anchor takes the
        arrivals, and this rank's parameters become the anchor, stepped with what it lacks. With the first such step, the anchor is
        what the rank has before it. `lacks`: iterations of which the anchor will lack gradients."""

    def settle(self, rounds: Sequence[Sequence[Arrival]]) -> None:
        """Take arrivals at once, after which the anchor lacks nothing, without a step of the script's optimizer."""

    def end(self) -> None:
        """Let the rank train at the anchor itself, as soon as the anchor lacks nothing."""

    def saved(self) -> npt.NDArray[np.uint8]:
        """Return what this rank has apart from the anchor, as bytes."""

    def restore(self, saved: npt.NDArray[np.uint8]) -> None:
        """Go on from what was saved, beside an anchor that the model and its optimizer have loaded."""


class LocalAnchor(Protocol):
    """Parameters that are the same on all ranks, which train apart from them by steps of their own, each with its own state.

    Attributes:
        before_step: called when a step of the script's optimizer begins, before anything else.
    """

    before_step: Callable[[], None] | None

    @property
    def held_bytes(self) -> int:
        """Bytes of the anchor's parameters and of the outer optimizer's state."""

    def begin(self, outer: Outer) -> None:
        """Take what the rank has before its next step as the anchor, which `outer` steps."""

    def depart(
        self, bucket: LoadedBucket, under_way: Sequence[tuple[LoadedBucket, float]], weight: float = 1.0
    ) -> None:
        """Write into the bucket how far this rank came since it wrote last, as a gradient, times `weight`: what it was less what it
        is. `under_way`: what it has written that the anchor lacks, with its weights."""

    def arrive(self, arrivals: Sequence[Arrival], *, lacks: range) -> None:
        """Step the anchor with these means; the rank goes on from there, with what it has stepped since. `lacks`: iterations that
        the anchor lacks afterwards."""

    def settle(self) -> None:
        """Go on from the anchor itself, in which all iterations are."""

    def distance(self) -> float:
        """Return the distance of the rank's parameters to the anchor."""

    def discard(self) -> None:
        """Go on from the anchor as it is, with an optimizer that has not stepped: what this rank has stepped since is lost."""

    def end(self) -> None:
        """Let the rank train at the anchor itself, which lacks nothing."""

    def saved(self) -> npt.NDArray[np.uint8]:
        """Return what this rank has apart from the anchor, and the outer optimizer's state, as bytes."""

    def restore(self, saved: npt.NDArray[np.uint8], *, apart: bool) -> None:
        """Go on from what was saved, beside an anchor that the model has loaded; not `apart`: with the outer optimizer's state
        alone. UsageError: it is of another model."""
