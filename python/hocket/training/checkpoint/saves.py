"""Warning, given once, that a script saves a model while gradients are made and not applied, and does not save these."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

from hocket.artefacts.turn_counts import TurnCounts, write_turns
from hocket.job.trace_writes import TraceWrites
from hocket.training.memory.framework import Framework


class Saves:
    """Saves of one session's model.

    Attributes:
        open: by save without open gradients, the number of iterations whose gradients were made and not applied.
    """

    def __init__(self, framework: Framework, counts: Callable[[], tuple[int, int]]) -> None:
        """Watch. `counts`: iterations whose gradients were made, and number of those of which all were applied."""
        self.open: list[int] = []
        self._counts = counts
        self._left = 0
        self._warned = False
        framework.on_save(self._saving)

    def settled(self) -> None:
        """Note that open gradients are applied, or saved beside the model."""
        self._left = 0

    def training(self) -> None:
        """Note that training goes on, or ends: anything to be saved with the model is saved by now."""
        if not self._left:
            return
        self.open.append(self._left)
        left, self._left = self._left, 0
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"the model's state was saved without the gradients of {left} iterations, which were made and not applied; "
                "said once\n"
                "hint: save hk.state_dict(model) beside it, or call hk.flush(model) before",
                RuntimeWarning,
                stacklevel=2,
            )

    def ended(self, rank: int) -> None:
        """Note that training has ended. Rank 0 warns of gradients that are made and not applied."""
        self.training()
        made, applied = self._counts()
        if applied < made and rank == 0:
            warnings.warn(
                f"gradients of the last {made - applied} of {made} iterations were made and not applied\n"
                "hint: hk.flush(model) after the last step, on all ranks",
                RuntimeWarning,
                stacklevel=2,
            )

    def write(self, directory: Path, rank: int, extra: int) -> None:
        """Write the numbers of made and applied iterations, and of bytes beyond those of synchronous training, for the trace."""
        made, applied = self._counts()
        left = tuple(self.open)
        counts = TurnCounts(made=made, applied=applied, saved_open=left, extra_bytes=extra)
        TraceWrites("counts of turns")(lambda: write_turns(directory, rank, counts))

    def _saving(self) -> None:
        made, applied = self._counts()
        self._left = made - applied
