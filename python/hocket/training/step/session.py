"""Interface of a distributed model to its script, however its ranks train together: each kind of session implements `Session`."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Protocol

from hocket.job.rendezvous import Job
from hocket.policy.policy import Value
from hocket.training.beside.spans import Spans
from hocket.training.checkpoint.saved import SavedSession
from hocket.training.step.owners import Owners
from hocket.training.step.reducing import ReducingSession


class Session(Protocol):
    """One distributed model.

    Attributes:
        job: the ranks that train it.
        spans: its trace, if one is written.
        iteration: number of steps that were made since the job began, as all ranks count them.
    """

    job: Job
    spans: Spans | None
    iteration: int

    @property
    def counts_steps(self) -> bool:
        """Return whether steps of the optimizer are counted, so that no other may step the parameters."""

    @property
    def owners(self) -> Owners | None:
        """Return the owners of parameters, if owners may update some."""

    def start(self) -> None:
        """Start the threads beside training: the model is distributed."""

    def close(self) -> None:
        """Finish outstanding work, and stop the threads beside training."""

    def retire(self) -> None:
        """End in the middle of the job, as other sessions are to train the parameters: apply outstanding updates, end programs and
        threads. All ranks call it. UsageError: this session cannot end before the job."""

    def no_sync(self) -> contextlib.AbstractContextManager[None]:
        """Accumulate gradients of backward passes inside, without communication."""

    def forward_begins(self, *, syncs: bool) -> None:
        """Note that a forward with gradients begins; `syncs`: the script lets its backward communicate."""

    def communicates(self) -> bool:
        """Return whether a backward now would communicate."""

    def record(self, name: str, value: float) -> None:
        """Record a statistic of this rank, for a policy."""

    def observe(
        self, *, loss: float | None = None, curvature: float | None = None, weight: float | None = None
    ) -> None:
        """Note a loss or curvature that the script knows, for the guards of merged and late gradients; or `weight`, by which a step
        counts where ranks step alone."""

    def agreed(self) -> Mapping[str, Value]:
        """Return the values on which all ranks agree in the current epoch, and its number as `epoch`."""

    def leave(self) -> None:
        """Leave the job in order, after a step that is still to come. UsageError: the job ends with its first rank."""

    def finish_step(self) -> None:
        """Apply updates that gates have put off."""

    def settle(self) -> None:
        """Make the gradients of the last backward final, before they are read or clipped.

        UsageError: there are none to read.
        """

    def flush(self) -> None:
        """Apply gradients that were made and not applied yet, with one optimizer step for each update; all ranks call it."""

    def saved(self) -> SavedSession:
        """Return the state that this rank needs beside model and optimizer to resume bit for bit. All ranks call it, after a step.

        UsageError: there is no such state now.
        """

    def restore(self, saved: SavedSession, *, strict: bool) -> None:
        """Resume from a saved state, before the first backward. All ranks call it. `strict`: no state is missing or left over.

        UsageError: the state belongs to something else.
        """

    def joinable(self) -> ReducingSession | None:
        """Return the session whose reductions a rank without batches joins with zeros; None: ranks do not wait for one another.

        UsageError: ranks do wait, but zeros do not work.
        """
