"""A distributed model for its script, however its ranks train together: each kind of session implements `Session`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Protocol

from hocket.job.rendezvous import Job
from hocket.policy.policy import Value
from hocket.training.beside.spans import Spans
from hocket.training.checkpoint.saved import SavedSession
from hocket.training.step.reducing import ReducingSession


class Session(Protocol):
    """One distributed model.

    Attributes:
        job: the ranks that train it.
        spans: its trace, if one is written.
    """

    job: Job
    spans: Spans | None

    def start(self) -> None:
        """The model is distributed: start the threads beside training."""

    def close(self) -> None:
        """Finish outstanding work, and stop the threads beside training."""

    def retire(self) -> None:
        """In the middle of the job, other sessions are to train its parameters: what is outstanding is applied, and programs and
        threads end. All ranks call it. UsageError: this one cannot end before the job."""

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Backward passes inside accumulate without communication."""

    def forward_begins(self, *, syncs: bool) -> None:
        """A forward with gradients begins; `syncs`: whether the script lets its backward communicate."""

    def communicates(self) -> bool:
        """Whether a backward now would communicate."""

    def record(self, name: str, value: float) -> None:
        """Record a statistic of this rank, for a policy."""

    def observe(self, *, loss: float | None = None, curvature: float | None = None) -> None:
        """What the script knows of how its model learns, for what guards merged and late gradients."""

    def agreed(self) -> Mapping[str, Value]:
        """The values on which all ranks agree in the current epoch, and its number as `epoch`."""

    def settle(self) -> None:
        """Make the gradients of the last backward final, before they are read or clipped.

        UsageError: there are none to read.
        """

    def flush(self) -> None:
        """Apply what was made and is not applied yet, a step of the optimizer for each update; all ranks call it."""

    def saved(self) -> SavedSession:
        """What this rank needs beside the model's and the optimizer's state to go on with equal bits. All call it, after a step.

        UsageError: there is no such state now.
        """

    def restore(self, saved: SavedSession, *, strict: bool) -> None:
        """Go on from it, before the first backward. All ranks call it. `strict`: no state is missing, none is left over.

        UsageError: it is of something else.
        """

    def joinable(self) -> ReducingSession | None:
        """The session whose reductions a rank without batches joins with zeros; None: ranks do not wait for one another.

        UsageError: they do, but zeros do not work.
        """
